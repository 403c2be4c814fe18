"""p-values of heads from random controls, corrected for the number of heads."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

ALPHA = 0.02  # not 0.05: the error rate measured over 60 models must stay below 5 % including its interval
FEWEST_DRAWS = 499
DRAWS_PER_HEAD = 100  # makes the smallest possible p times the number of heads at most half of ALPHA


def draws_for(n_heads: int) -> int:
    """Number of draws needed to test this many heads."""
    return max(FEWEST_DRAWS, DRAWS_PER_HEAD * n_heads - 1)


def tail_probability(observed: float, null: Float[np.ndarray, "draw"]) -> float:
    """p = (1 + draws that are at least as large) / (1 + draws); never 0."""
    return float((1 + np.count_nonzero(null >= observed)) / (1 + len(null)))


def holm(p_values: Float[np.ndarray, "head"]) -> Float[np.ndarray, "head"]:
    """p-values adjusted for testing all heads (Holm 1979): those at most ALPHA are wrong in at most 2 % of models.

    Untested heads are NaN; they stay NaN and do not count.
    """
    adjusted = np.full(len(p_values), np.nan)
    tested = np.flatnonzero(~np.isnan(p_values))
    order = tested[np.argsort(p_values[tested], kind="stable")]
    steps = p_values[order] * np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted
