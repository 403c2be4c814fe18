"""How high is a head's AUROC over query tokens, and how sure is that? Three means, each with a bootstrap interval.

seen      Σ a_i / number of defined a_i          all   Σ a_i / number of query tokens, an undefined a_i being 0
weighted  Σ w_i a_i / Σ w_i over defined a_i     w_i the total weight of the positives of query token i
"""

from __future__ import annotations

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
    n_queries = auroc.shape[1]
    terms = _terms(auroc, totals)
    values = _means(np.ones((1, n_queries)), terms)
    drawn = np.full((3, 0, len(auroc)), np.nan)
    if resamples and n_queries:
        random = np.random.default_rng(seed)
        starts = range(0, resamples, AT_ONCE)
        times = (_times_drawn(random, min(AT_ONCE, resamples - start), n_queries) for start in starts)
        drawn = np.concatenate([_means(drawn_times, terms) for drawn_times in times], axis=1)
    return HeadMeans(*(_interval(value[0], samples) for value, samples in zip(values, drawn, strict=True)))


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


def _interval(value: Float[np.ndarray, "head"], samples: Float[np.ndarray, "resample head"]) -> Interval:
    undefined = np.full(len(value), np.nan)
    if not len(samples) or np.isnan(value).all():
        return Interval(value, undefined, undefined)
    low, high = np.nanquantile(samples, [(1 - COVERED) / 2, (1 + COVERED) / 2], axis=0)
    return Interval(value, low, high)
