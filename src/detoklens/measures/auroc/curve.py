"""What does the ROC curve of one query token look like? The points of every head's curve."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int64

from detoklens.measures.auroc.positives import Positives
from detoklens.measures.ranking import scores_of
from detoklens.scores.affinity import Affinity

Points = dict[str, np.ndarray]


def roc_curves(affinity: Affinity, positives: Positives, token: int) -> list[Points]:
    """The corners of each head's curve, from no key found to all found; points on a straight line are left out.

    The token must have both positives and negatives.
    """
    keys, weights = positives.of(token)
    weight = np.zeros(positives.vocab_size, np.int64)
    weight[keys] = weights
    return [_curve(scores, weight) for scores in scores_of(affinity.single(), token)]


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
