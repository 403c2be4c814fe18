"""p-values from random controls, corrected for the number of heads, and bootstrap intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from detoklens.kernels.ranking import resampled_medians

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
    """p-values adjusted for testing all heads (Holm 1979): at most 2 % of models have a false positive at ALPHA.

    Untested heads are NaN; they stay NaN and do not count.
    """
    adjusted = np.full(len(p_values), np.nan)
    tested = np.flatnonzero(~np.isnan(p_values))
    order = tested[np.argsort(p_values[tested], kind="stable")]
    steps = p_values[order] * np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted


COVERED = 0.95
AT_ONCE = 16  # resamples per matrix product
FEWEST_WORDS = 30  # needed for an interval


class Interval(NamedTuple):
    """Numbers with the ends of their 95 % intervals, which are NaN without resamples."""

    value: Float[np.ndarray, "*rows"]
    low: Float[np.ndarray, "*rows"]
    high: Float[np.ndarray, "*rows"]

    def columns(self, name: str) -> dict[str, Float[np.ndarray, "*rows"]]:
        """As the columns of a table."""
        return {name: self.value, f"{name}_low": self.low, f"{name}_high": self.high}


def resampled(n_units: int, resamples: int, seed: int) -> Iterator[Float[np.ndarray, "resample unit"]]:
    """How often each unit (query token, word, document) counts in each resample, some resamples at a time.

    The same seed draws the same units, so that differences of measures are paired.
    """
    random = np.random.default_rng(seed)
    for start in range(0, resamples if n_units else 0, AT_ONCE):
        drawn = random.integers(n_units, size=(min(AT_ONCE, resamples - start), n_units))
        yield np.stack([np.bincount(row, minlength=n_units) for row in drawn]).astype(np.float64)


def interval(
    value: Float[np.ndarray, "*rows"], samples: Float[np.ndarray, "resample *rows"], skip_undefined: bool = False
) -> Interval:
    """A measure with the middle 95 % of its resamples.

    A resample in which it is undefined is skipped, or leaves it without an interval.
    """
    if not len(samples) or np.isnan(value).all():
        return Interval(value, np.full_like(value, np.nan), np.full_like(value, np.nan))
    quantile = np.nanquantile if skip_undefined else np.quantile
    return Interval(value, *quantile(samples, [(1 - COVERED) / 2, (1 + COVERED) / 2], axis=0))


def over_words(
    measure: Callable[[Float[np.ndarray, "resample word"]], Float[np.ndarray, "resample row"]],
    n_words: int,
    resamples: int,
    seed: int,
) -> Interval:
    """A measure of all words, and its interval over resamples; no interval below 30 words or without resamples.

    `measure` receives how often each word counts.
    """
    value = measure(np.ones((1, n_words)))[0]
    times = list(resampled(n_words, resamples if n_words >= FEWEST_WORDS else 0, seed))
    return interval(value, measure(np.concatenate(times)) if times else value[:0])


def medians(
    ranks: Int[np.ndarray, "value"], times: Float[np.ndarray, "resample value"]
) -> Float[np.ndarray, "resample"]:
    """The median of each resample; `times` says how often each value counts. NaN without values."""
    found = np.full(len(times), np.nan)
    if not len(ranks):
        return found
    resampled_medians(ranks.astype(np.float64), np.argsort(ranks, kind="stable"), np.ascontiguousarray(times), found)
    return found
