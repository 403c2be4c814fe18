"""The options of `detoklens auroc`: what is right, what it is compared with, what is shown."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Truth(StrEnum):
    """Where the positives come from."""

    counts = "counts"
    merges = "merges"
    words = "words"


class Kind(StrEnum):
    """Which pairs of the corpus are positives."""

    seen = "count"
    pmi = "pmi"


class Weight(StrEnum):
    """How much a positive weighs."""

    counted = "count"
    one = "one"


class Negatives(StrEnum):
    """Which keys a positive is compared with."""

    all = "all"
    matched = "matched"


Tokens = Annotated[
    list[str] | None,
    typer.Option(
        "--tokens",
        metavar="TOKEN",
        help='Only these query tokens: text with its space (" Korea"), ids (262 or 0-99), or @FILE with one a '
        "line; may be repeated.",
        show_default=False,
    ),
]
Pieces = Annotated[
    bool, typer.Option("--pieces", help="Only query tokens that go on with a word: a letter first, no space.")
]
TruthOption = Annotated[
    Truth,
    typer.Option("--truth", help="Right pairs: of the corpus, of the tokenizer's merges, of a word list's pieces."),
]
Words = Annotated[
    Path | None,
    typer.Option("--words", metavar="FILE", help="One word a line. Default: the list that comes along."),
]
Positive = Annotated[
    Kind, typer.Option("--positives", help="Of the corpus: every pair it holds, or those above a PMI.")
]
PmiAbove = Annotated[float, typer.Option("--pmi-above", help="With --positives pmi: the PMI in bits.")]
Weights = Annotated[
    Weight, typer.Option("--weights", help="A positive weighs as much as its count, or as much as any other.")
]
Negative = Annotated[
    Negatives, typer.Option("--negatives", help="Compare with all other keys, or only with equally frequent ones.")
]
FirstKeys = Annotated[int, typer.Option("--k", min=1, help="Precision among the first K keys.")]
Controls = Annotated[
    bool, typer.Option("--controls/--no-controls", help="Two nulls and the frequency baseline beside each head.")
]
Roc = Annotated[
    str | None,
    typer.Option("--roc", metavar="TOKEN", help="Instead: the points of one token's curve.", show_default=False),
]
Bootstrap = Annotated[
    int, typer.Option("--bootstrap", min=0, help="Resamples of the query tokens for the intervals; 0 for none.")
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Of the nulls and the resamples.")]
Share = Annotated[
    Path | None,
    typer.Option(
        "--share",
        metavar="DIR",
        help="For what workers share: on a cluster, a folder that all machines see. Default: temporary.",
        show_default=False,
    ),
]
