"""What the commands about positions ask for alike: query positions, the mean over the vocabulary, its weights."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from detoklens.cli import asking
from detoklens.errors import CountsError

if TYPE_CHECKING:
    import numpy as np

    from detoklens.corpus.counts import Counts
    from detoklens.scores.layer import Layer


class AverageName(StrEnum):
    """Which mean over the vocabulary."""

    ratio_of_mean = "ratio-of-mean"
    mean_of_ratio = "mean-of-ratio"


class WeightsName(StrEnum):
    """How tokens count in the mean and the band."""

    even = "even"
    frequency = "frequency"


QueryPositions = Annotated[
    str | None,
    typer.Option(
        "--query-positions",
        metavar="50,500,1000",
        help="Positions to look from. Default: about 1/20, 1/2 and nearly all of the model's length.",
        show_default=False,
    ),
]
Average = Annotated[
    AverageName,
    typer.Option("--average", help="The mean over the vocabulary: score / mean σ, or mean of score / σ."),
]
Weights = Annotated[
    WeightsName,
    typer.Option("--weights", help="Tokens count evenly, or by their frequency in --counts."),
]


@dataclass(frozen=True)
class Vocabulary:
    """The weights of the vocabulary, and the counts they come from."""

    counts: Counts | None
    token_weights: np.ndarray | None


def weighted_vocabulary(layer: Layer, weights: WeightsName, folder: Path | None) -> Vocabulary:
    """What `--weights` and `--counts` ask for; an error where one needs the other."""
    if weights is WeightsName.even:
        if folder is not None:
            raise CountsError("--counts has no part in even weights; add --weights frequency, or leave --counts away")
        return Vocabulary(None, None)
    counts = asking.open_counts(folder, layer)
    if counts is None:
        raise CountsError("--weights frequency needs --counts COUNTS; make them with `detoklens count`")
    return Vocabulary(counts, counts.tokens.astype("float64"))


def asked(query_positions: list[int] | None, average: AverageName, weights: WeightsName, **more: Any) -> dict[str, Any]:
    """The options as a table's provenance names them."""
    return {"query_positions": query_positions, "average": average.value, "weights": weights.value, **more}
