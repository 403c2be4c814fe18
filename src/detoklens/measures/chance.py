"""p-values from random controls, corrected for the number of heads, and bootstrap intervals over words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from detoklens.measures.auroc.means import COVERED

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


FEWEST_WORDS = 30  # needed for an interval


@dataclass(frozen=True)
class Measured:
    """A number per row with the ends of its 95 % interval, which are NaN without resamples."""

    value: Float[np.ndarray, "row"]
    low: Float[np.ndarray, "row"]
    high: Float[np.ndarray, "row"]

    def columns(self, name: str) -> dict[str, Float[np.ndarray, "row"]]:
        """As the columns of a table."""
        return {name: self.value, f"{name}_low": self.low, f"{name}_high": self.high}


def over_words(
    measure: Callable[[Float[np.ndarray, "resample word"]], Float[np.ndarray, "resample row"]],
    n_words: int,
    resamples: int,
    seed: int,
) -> Measured:
    """A measure of all words, and its interval over resamples; no interval below 30 words or without resamples.

    `measure` is told how often each word counts. The same seed draws the same words, so results can be compared.
    """
    value = measure(np.ones((1, n_words)))[0]
    if resamples == 0 or n_words < FEWEST_WORDS:
        return Measured(value, np.full(len(value), np.nan), np.full(len(value), np.nan))
    random = np.random.default_rng(seed)
    times = [np.bincount(random.integers(n_words, size=n_words), minlength=n_words) for _ in range(resamples)]
    low, high = np.quantile(measure(np.array(times, np.float64)), [(1 - COVERED) / 2, (1 + COVERED) / 2], axis=0)
    return Measured(value, low, high)


def medians(
    ranks: Int[np.ndarray, "value"], times: Float[np.ndarray, "resample value"]
) -> Float[np.ndarray, "resample"]:
    """The median of each resample; `times` says how often each value counts."""
    order = np.argsort(ranks, kind="stable")
    passed = np.cumsum(times[:, order], axis=1)
    middles = (passed[:, -1:] - 1) // 2, passed[:, -1:] // 2
    return np.mean([ranks[order][(passed > middle).argmax(axis=1)] for middle in middles], axis=0)
