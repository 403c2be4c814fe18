"""Compiled loops over one row of scores: count the scores below and equal to each positive, without sorting the row.

Only the positives of a row are sorted (some hundred of 50,257 keys). Bins over the positives' range show, for each
score, which positives lie in lower bins; comparisons are needed only in the few bins that hold a positive. Binning
rounds but preserves the order: if bin(a) < bin(b), then a < b. Scores are compared exactly, as float32.
"""

from __future__ import annotations

import numpy as np

from detoklens.kernels.compiling import compiled

COMPARED_ONE_BY_ONE = 16
"""Up to this many positives, comparing every score with each of them (vectorised) is faster than binning."""

BINS_TO_SORT, BINS_TO_COUNT = 2, 128
"""Bins per positive: few to sort the positives themselves, many so that few scores share a bin with a positive."""

MOST_BINS = 1 << 16
CROWDED = 64
"""Bins with many more positives than this (outliers stretch the range) are first sorted at wider gaps."""

MOST_IN_NARROW_SLOTS = (1 << 15) - 1
"""Up to this many positives, a bin's slot fits into 16 bits, and the table takes half of the first-level cache."""

CHUNK = 1024
"""Scores whose bins are computed in one vectorised pass; their bins stay in the first-level cache."""


@compiled(from_python=False, inline="always")
def bin_of(score: np.float32, lowest: np.float32, per_unit: np.float32, last: np.float32) -> np.uint32:
    """The bin of a score, from 0 to last; never falls when the score rises, and is 0 for NaN."""
    place = (score - lowest) * per_unit
    place = place if place > np.float32(0) else np.float32(0)
    place = place if place < last else last
    return np.uint32(np.int32(place))


@compiled(from_python=False)
def bins_over(positives: np.ndarray, n: int | np.int64, per_positive: int) -> tuple[np.float32, np.float32, int]:
    """Bins over the range of the first n positives: where they begin, bins per unit of score, how many bins.

    The first bin and the last one hold no positive: what lies outside the range, a tenth of all scores where positives
    are few, needs no comparison.
    """
    lowest, highest = positives[0], positives[0]
    for place in range(n):
        lowest, highest = min(lowest, positives[place]), max(highest, positives[place])
    bins = 64
    while bins < per_positive * n and bins < MOST_BINS:
        bins *= 2
    per_unit = np.float32(0)
    if highest > lowest:
        per_unit = np.float32(bins - 3) / (highest - lowest)
        lowest -= (highest - lowest) / np.float32(bins - 3)
    return lowest, per_unit, bins


@compiled()
def sort_with_weights(
    scores: np.ndarray,
    weights: np.ndarray,
    n: int | np.int64,
    starts: np.ndarray,
    sorted_scores: np.ndarray,
    sorted_weights: np.ndarray,
) -> None:
    """Sort n scores with their weights into the given arrays: by bins, then by insertion."""
    lowest, per_unit, bins = bins_over(scores, n, BINS_TO_SORT)
    last = np.float32(bins - 1)
    for bin_number in range(bins + 1):
        starts[bin_number] = 0
    for place in range(n):
        starts[bin_of(scores[place], lowest, per_unit, last) + np.uint32(1)] += 1
    fullest = np.int64(0)
    for bin_number in range(bins):
        fullest = max(fullest, starts[bin_number + 1])
        starts[bin_number + 1] += starts[bin_number]
    for place in range(n):
        bin_number = bin_of(scores[place], lowest, per_unit, last)
        sorted_scores[starts[bin_number]], sorted_weights[starts[bin_number]] = scores[place], weights[place]
        starts[bin_number] += 1
    gap = np.int64(1)
    while gap < fullest // CROWDED:
        gap = 3 * gap + 1
    while gap > 0:  # Shell's sort; with gap 1 an insertion sort, which is fast on nearly sorted data
        for place in range(gap, n):
            score, weight, free = sorted_scores[place], sorted_weights[place], np.int64(place)
            while free >= gap and sorted_scores[free - gap] > score:
                sorted_scores[free], sorted_weights[free] = sorted_scores[free - gap], sorted_weights[free - gap]
                free -= gap
            sorted_scores[free], sorted_weights[free] = score, weight
        gap //= 3


@compiled()
def count_by_comparison(
    row: np.ndarray, positives: np.ndarray, n: int | np.int64, below: np.ndarray, equal: np.ndarray
) -> None:
    """For each of n distinct positives: how many scores of the row are below, how many equal?"""
    for place in range(n):
        positive, less, same = positives[place], np.int32(0), np.int32(0)
        for key in range(row.size):  # sums of 32 bits: four times as fast as those of 64
            less = np.int32(less + np.int32(row[key] < positive))
            same = np.int32(same + np.int32(row[key] == positive))
        below[place], equal[place] = less, same


@compiled(from_python=False)
def first_not_below(score: np.float32, positives: np.ndarray, first: np.uint32, end: np.uint32) -> np.uint32:
    """The first place from `first` to `end` whose positive is not below the score."""
    while first < end:
        middle = (first + end) // np.uint32(2)
        if positives[middle] < score:
            first = middle + np.uint32(1)
        else:
            end = middle
    return first


@compiled(from_python=False)
def count_ranks(
    row: np.ndarray,
    positives: np.ndarray,
    n: int | np.int64,
    between: np.ndarray,
    narrow_slots: np.ndarray,
    slots: np.ndarray,
    below: np.ndarray,
    equal: np.ndarray,
) -> None:
    """For each of n distinct sorted positives, how many scores of the row are below and equal; one entry is spare."""
    if n <= COMPARED_ONE_BY_ONE:
        count_by_comparison(row, positives, n, below, equal)
    elif n <= MOST_IN_NARROW_SLOTS:
        count_by_bins(row, positives, n, narrow_slots, between, below, equal)
    else:
        count_by_bins(row, positives, n, slots, between, below, equal)


@compiled()
def count_by_bins(
    row: np.ndarray,
    positives: np.ndarray,
    n: int | np.int64,
    slots: np.ndarray,
    between: np.ndarray,
    below: np.ndarray,
    equal: np.ndarray,
) -> None:
    """The same by bins.

    slots[b] = twice the number of positives in bins below b, plus 1 where bin b holds one itself. `between[2 p]` counts
    the scores just below positive p, `between[2 p + 1]` those equal to it. A bin's slot says at once where its scores
    belong, but for the few that share their bin with a positive.
    """
    lowest, per_unit, bins = bins_over(positives, n, min(BINS_TO_COUNT, BINS_TO_SORT + 4 * row.size // n))
    last = np.float32(bins - 1)
    empty_from = np.int64(0)
    for place in range(n):
        bin_number = np.int64(bin_of(positives[place], lowest, per_unit, last))
        if bin_number >= empty_from:
            slots[empty_from:bin_number] = 2 * place
            slots[bin_number] = 2 * place + 1
            empty_from = bin_number + 1
    slots[empty_from : bins + 1] = 2 * n
    positives[n] = np.inf
    for empty in range(2 * n + 2):
        between[empty] = 0
    chunk_bins = np.empty(CHUNK, np.uint32)
    for begin in range(0, row.size, CHUNK):
        chunk = row[begin : begin + CHUNK]
        for key in range(chunk.size):
            chunk_bins[key] = bin_of(chunk[key], lowest, per_unit, last)
        for key in range(chunk.size):
            slot = np.uint32(slots[chunk_bins[key]])
            if slot & np.uint32(1):
                end = np.uint32(slots[chunk_bins[key] + np.uint32(1)]) // np.uint32(2)
                place = first_not_below(chunk[key], positives, slot // np.uint32(2), end)
                slot = np.uint32(2) * place + np.uint32(chunk[key] == positives[place])
            between[slot] += 1
    passed = np.int64(0)
    for positive in range(n):
        passed += between[2 * positive]
        below[positive], equal[positive] = passed, between[2 * positive + 1]
        passed += equal[positive]
