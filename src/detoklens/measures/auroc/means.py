"""How high is a head's AUROC over query tokens, and how sure is that? Three means, each with a bootstrap interval.

seen      Σ a_i / number of defined a_i          all   Σ a_i / number of query tokens, an undefined a_i being 0
weighted  Σ w_i a_i / Σ w_i over defined a_i     w_i the total weight of the positives of query token i
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

COVERED = 0.95
AT_ONCE = 16
"""Resamples whose sums are taken by one product."""


@dataclass(frozen=True)
class Interval:
    """A mean of each head, with the ends of its interval (NaN where none was asked for)."""

    value: Float[np.ndarray, "head"]
    low: Float[np.ndarray, "head"]
    high: Float[np.ndarray, "head"]


@dataclass(frozen=True)
class HeadMeans:
    """The three means of each head."""

    seen: Interval
    all: Interval
    weighted: Interval


def head_means(
    auroc: Float[np.ndarray, "head query"], totals: Int[np.ndarray, "query"], resamples: int = 1000, seed: int = 0
) -> HeadMeans:
    """The three means over query tokens and their percentile intervals over resampled query tokens.

    Every head and every mean sees the same resamples, so that differences between heads may be compared too.
    """
    terms = _terms(auroc, totals)
    values = _means(np.ones((1, auroc.shape[1])), terms)
    drawn = [_means(times, terms) for times in resampled(auroc.shape[1], resamples, seed)]
    samples = np.concatenate([np.full((3, 0, len(auroc)), np.nan), *drawn], axis=1)
    return HeadMeans(*(interval(value[0], some) for value, some in zip(values, samples, strict=True)))


def resampled(n_queries: int, resamples: int, seed: int) -> Iterator[Float[np.ndarray, "resample query"]]:
    """How often does each query token come up in each resample? Some resamples at a time."""
    random = np.random.default_rng(seed)
    for start in range(0, resamples if n_queries else 0, AT_ONCE):
        yield _times_drawn(random, min(AT_ONCE, resamples - start), n_queries)


def _terms(
    auroc: Float[np.ndarray, "head query"], totals: Int[np.ndarray, "query"]
) -> Float[np.ndarray, "sum head query"]:
    """What is summed: a_i, 1 where it is defined, w_i a_i, w_i where it is defined."""
    defined = ~np.isnan(auroc)
    known = np.where(defined, auroc, 0.0)
    return np.stack([known, defined.astype(np.float64), known * totals, defined * totals.astype(np.float64)])


def _times_drawn(random: np.random.Generator, resamples: int, n_queries: int) -> Float[np.ndarray, "resample query"]:
    """How often does each query token come up in each resample?"""
    drawn = random.integers(n_queries, size=(resamples, n_queries))
    return np.stack([np.bincount(row, minlength=n_queries) for row in drawn]).astype(np.float64)


def _means(
    times: Float[np.ndarray, "resample query"], terms: Float[np.ndarray, "sum head query"]
) -> Float[np.ndarray, "mean resample head"]:
    """seen, all and weighted of each resample; NaN where a mean has nothing to average."""
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
    """The mean over the query tokens where the measure is defined; NaN where it is nowhere."""
    defined = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        return np.where(defined, values, 0.0).sum(axis=1) / defined.sum(axis=1)
