"""What does the ROC curve of one query token look like? The points of every head's curve."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from jaxtyping import Bool, Float, Int64

from detoklens.analyses.auroc.blocks import scores_of
from detoklens.analyses.auroc.positives import Positives
from detoklens.errors import TokenError
from detoklens.scores.affinity import Affinity
from detoklens.tables.auroc import ROC_POINTS

Points = dict[str, np.ndarray]


def roc_points(
    affinity: Affinity, heads: Sequence[int], positives: Positives, token: int, text: str | None
) -> pl.DataFrame:
    """The corners of each head's curve, from no key found to all found; points on a straight line are left out."""
    keys, weights = positives.of(token)
    if not 0 < len(keys) < positives.vocab_size:
        raise TokenError(
            f"token {token} ({text!r}) has {len(keys)} positives among {positives.vocab_size} keys, so no curve; "
            "ask about a token that follows some tokens and not others"
        )
    weight = np.zeros(positives.vocab_size, np.int64)
    weight[keys] = weights
    curves = [_curve(scores, weight) for scores in scores_of(affinity, token)]
    columns = {name: np.concatenate([curve[name] for curve in curves]) for name in curves[0]}
    sizes = [len(curve["threshold"]) for curve in curves]
    named = {"head": np.repeat(np.asarray(heads), sizes), "token_id": np.full(sum(sizes), token)}
    return ROC_POINTS.frame({**named, "token": pl.Series([text] * sum(sizes), dtype=pl.String), **columns})


def _curve(scores: Float[np.ndarray, "token"], weight: Int64[np.ndarray, "token"]) -> Points:
    """Thresholds from above all scores to the lowest, with the shares found at each."""
    order = np.argsort(-scores, kind="stable")
    last_of_tie = np.append(np.diff(scores[order]) != 0, True)
    found = np.concatenate([[0], np.cumsum(weight[order])[last_of_tie]])
    wrong = np.concatenate([[0], np.cumsum(weight[order] == 0)[last_of_tie]])
    corner = _corners(found, wrong)
    thresholds = np.concatenate([[np.nan], scores[order][last_of_tie]])
    return {
        "threshold": thresholds[corner],
        "false_positive_rate": wrong[corner] / wrong[-1],
        "true_positive_rate": found[corner] / found[-1],
    }


def _corners(found: Int64[np.ndarray, "point"], wrong: Int64[np.ndarray, "point"]) -> Bool[np.ndarray, "point"]:
    """Both ends, and the points where the curve bends."""
    bends = np.diff(found)[:-1] * np.diff(wrong)[1:] != np.diff(found)[1:] * np.diff(wrong)[:-1]
    return np.concatenate([[True], bends, [True]])
