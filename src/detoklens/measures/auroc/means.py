"""Three means of a head's AUROC over query tokens, each with a bootstrap interval.

seen      Σ a_i / number of defined a_i          all   Σ a_i / number of query tokens, an undefined a_i being 0
weighted  Σ w_i a_i / Σ w_i over defined a_i     w_i the total weight of the positives of query token i
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from detoklens.parallel import one_core_each

COVERED = 0.95
AT_ONCE = 16  # resamples per matrix product


@dataclass(frozen=True)
class Interval:
    """A mean of each head with the ends of its interval; NaN without resamples."""

    value: Float[np.ndarray, "head"]
    low: Float[np.ndarray, "head"]
    high: Float[np.ndarray, "head"]


@dataclass(frozen=True)
class HeadMeans:
    seen: Interval
    all: Interval
    weighted: Interval


def head_means(
    auroc: Float[np.ndarray, "head query"], totals: Int[np.ndarray, "query"], resamples: int = 1000, seed: int = 0
) -> HeadMeans:
    """The three means over query tokens and their percentile intervals over resampled query tokens.

    All heads and means use the same resamples, so that differences between heads are paired.
    """
    terms = _terms(auroc, totals)
    values = _means(np.ones((1, auroc.shape[1])), terms)
    with one_core_each():  # small products: more threads would wait for each other
        drawn = [_means(times, terms) for times in resampled(auroc.shape[1], resamples, seed)]
    samples = np.concatenate([np.full((3, 0, len(auroc)), np.nan), *drawn], axis=1)
    return HeadMeans(*(interval(value[0], some) for value, some in zip(values, samples, strict=True)))


def resampled(n_queries: int, resamples: int, seed: int) -> Iterator[Float[np.ndarray, "resample query"]]:
    """How often each query token occurs in each resample, some resamples at a time."""
    random = np.random.default_rng(seed)
    for start in range(0, resamples if n_queries else 0, AT_ONCE):
        drawn = random.integers(n_queries, size=(min(AT_ONCE, resamples - start), n_queries))
        yield np.stack([np.bincount(row, minlength=n_queries) for row in drawn]).astype(np.float64)


def _terms(
    auroc: Float[np.ndarray, "head query"], totals: Int[np.ndarray, "query"]
) -> Float[np.ndarray, "sum head query"]:
    """The summands: a_i, 1 if defined, w_i a_i, w_i if defined."""
    defined = ~np.isnan(auroc)
    known = np.where(defined, auroc, 0.0)
    return np.stack([known, defined.astype(np.float64), known * totals, defined * totals.astype(np.float64)])


def _means(
    times: Float[np.ndarray, "resample query"], terms: Float[np.ndarray, "sum head query"]
) -> Float[np.ndarray, "mean resample head"]:
    """The three means of each resample; NaN where nothing is averaged."""
    total, defined, weighted_total, weight = (times @ term.T for term in terms)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.stack([total / defined, total / times.sum(axis=1, keepdims=True), weighted_total / weight])


def interval(value: Float[np.ndarray, "head"], samples: Float[np.ndarray, "resample head"]) -> Interval:
    """A mean with the middle 95 % of its resamples."""
    undefined = np.full(len(value), np.nan)
    if not len(samples) or np.isnan(value).all():
        return Interval(value, undefined, undefined)
    low, high = np.nanquantile(samples, [(1 - COVERED) / 2, (1 + COVERED) / 2], axis=0)
    return Interval(value, low, high)


def mean_over_seen(values: Float[np.ndarray, "head query"]) -> Float[np.ndarray, "head"]:
    """The mean over query tokens with a defined value; NaN if there are none."""
    defined = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        return np.where(defined, values, 0.0).sum(axis=1) / defined.sum(axis=1)
