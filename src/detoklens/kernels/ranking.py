"""Compiled loops over score rows: how many keys score below each positive, how many the same? Exact, without sorting.

Of a row of scores only the positives are sorted (some hundred of 50,257 keys). Bins over the positives' range tell, for
each score, which positives lie in lower bins; a comparison is needed only in the few bins that hold a positive. Binning
rounds, but never changes an order: where bin(a) < bin(b), a < b. Scores are compared as the float32 that they are.
"""

import numba
import numpy as np

COMPARED_ONE_BY_ONE = 24
"""Up to so many positives, comparing every score with each of them (vectorised) is faster than binning."""

BINS_TO_SORT, BINS_TO_COUNT = 2, 64
"""Bins per positive: few to sort the positives themselves, many so that few scores share a bin with a positive."""

MOST_BINS = 1 << 16
CROWDED = 64
"""Bins with many more positives than this (a few far scores stretch the range) are first sorted at wider gaps."""

MOST_IN_NARROW_SLOTS = (1 << 15) - 1
"""Up to so many positives a bin's slot fits into 16 bits: the table takes half of the nearest cache."""

CHUNK = 1024
"""Scores whose bins are computed in one vectorised go; their bins stay in the first-level cache."""

MEASURES = 5
AUROC, AVERAGE_PRECISION, PRECISION_AT_K, CHANCE_AVERAGE_PRECISION, CHANCE_PRECISION_AT_K = range(MEASURES)

Space = tuple[np.ndarray, ...]


@numba.njit(nogil=True, cache=True, inline="always")
def bin_of(score: np.float32, lowest: np.float32, per_unit: np.float32, last: np.float32) -> np.uint32:
    """The bin of a score, from 0 to last; never falls when the score rises, and is 0 for NaN."""
    place = (score - lowest) * per_unit
    place = place if place > np.float32(0) else np.float32(0)
    place = place if place < last else last
    return np.uint32(np.int32(place))


@numba.njit(nogil=True, cache=True)
def fill_starts(
    positives: np.ndarray, n: int | np.int64, lowest: np.float32, per_unit: np.float32, bins: int, starts: np.ndarray
) -> np.int64:
    """starts[b] = how many of the first n positives lie in bins below b; how many has the fullest bin?"""
    last = np.float32(bins - 1)
    for bin_number in range(bins + 1):
        starts[bin_number] = 0
    for place in range(n):
        starts[bin_of(positives[place], lowest, per_unit, last) + np.uint32(1)] += 1
    fullest = np.int64(0)
    for bin_number in range(bins):
        fullest = max(fullest, starts[bin_number + 1])
        starts[bin_number + 1] += starts[bin_number]
    return fullest


@numba.njit(nogil=True, cache=True)
def bins_over(positives: np.ndarray, n: int | np.int64, per_positive: int) -> tuple[np.float32, np.float32, int]:
    """Bins over the range of the first n positives: the lowest score, bins per unit of score, how many bins."""
    lowest, highest = positives[0], positives[0]
    for place in range(n):
        lowest, highest = min(lowest, positives[place]), max(highest, positives[place])
    bins = 64
    while bins < per_positive * n and bins < MOST_BINS:
        bins *= 2
    per_unit = np.float32(0)
    if highest > lowest:
        per_unit = np.float32(bins - 1) / (highest - lowest)
    return lowest, per_unit, bins


@numba.njit(nogil=True, cache=True)
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
    fullest = fill_starts(scores, n, lowest, per_unit, bins, starts)
    last = np.float32(bins - 1)
    for place in range(n):
        bin_number = bin_of(scores[place], lowest, per_unit, last)
        sorted_scores[starts[bin_number]], sorted_weights[starts[bin_number]] = scores[place], weights[place]
        starts[bin_number] += 1
    gap = np.int64(1)
    while gap < fullest // CROWDED:
        gap = 3 * gap + 1
    while gap > 0:
        insert_at_gaps(sorted_scores, sorted_weights, n, gap)
        gap //= 3


@numba.njit(nogil=True, cache=True)
def insert_at_gaps(scores: np.ndarray, weights: np.ndarray, n: int | np.int64, gap: int | np.int64) -> None:
    """One pass of Shell's sort; with gap 1 an insertion sort, which is quick where nearly all is in order."""
    for place in range(gap, n):
        score, weight, free = scores[place], weights[place], np.int64(place)
        while free >= gap and scores[free - gap] > score:
            scores[free], weights[free] = scores[free - gap], weights[free - gap]
            free -= gap
        scores[free], weights[free] = score, weight


@numba.njit(nogil=True, cache=True)
def merge_equal(scores: np.ndarray, weights: np.ndarray, sizes: np.ndarray, n: int | np.int64) -> np.int64:
    """Join equal neighbours of n sorted scores: weights added, `sizes` says how many were joined; how many remain?"""
    distinct = np.int64(0)
    for place in range(n):
        if distinct and scores[place] == scores[distinct - 1]:
            weights[distinct - 1] += weights[place]
            sizes[distinct - 1] += 1
        else:
            scores[distinct], weights[distinct], sizes[distinct] = scores[place], weights[place], 1
            distinct += 1
    return distinct


@numba.njit(nogil=True, cache=True)
def count_by_comparison(
    row: np.ndarray, positives: np.ndarray, n: int | np.int64, below: np.ndarray, equal: np.ndarray
) -> None:
    """For each of n distinct positives: how many scores of the row are below, how many equal?"""
    for place in range(n):
        positive, less, same = positives[place], np.int32(0), np.int32(0)
        for key in range(row.size):
            less += np.int32(row[key] < positive)
            same += np.int32(row[key] == positive)
        below[place], equal[place] = less, same


@numba.njit(nogil=True, cache=True)
def first_not_below(score: np.float32, positives: np.ndarray, first: np.uint32, end: np.uint32) -> np.uint32:
    """The first place from `first` to `end` whose positive is not below the score."""
    while first < end:
        middle = (first + end) // np.uint32(2)
        if positives[middle] < score:
            first = middle + np.uint32(1)
        else:
            end = middle
    return first


@numba.njit(nogil=True, cache=True)
def fill_slots(
    positives: np.ndarray, n: int | np.int64, lowest: np.float32, per_unit: np.float32, bins: int, slots: np.ndarray
) -> None:
    """slots[b] = twice the number of the n sorted positives in bins below b, plus 1 where bin b holds one itself."""
    last = np.float32(bins - 1)
    empty_from = np.int64(0)
    for place in range(n):
        own = np.int64(bin_of(positives[place], lowest, per_unit, last))
        if own >= empty_from:
            slots[empty_from:own] = 2 * place
            slots[own] = 2 * place + 1
            empty_from = own + 1
    slots[empty_from : bins + 1] = 2 * n


@numba.njit(nogil=True, cache=True)
def count_by_bins(
    row: np.ndarray,
    positives: np.ndarray,
    n: int | np.int64,
    slots: np.ndarray,
    between: np.ndarray,
    below: np.ndarray,
    equal: np.ndarray,
) -> None:
    """For each of n distinct sorted positives: how many scores of the row are below, how many equal?

    `between[2 p]` counts the scores just below positive p, `between[2 p + 1]` those equal to it. A bin's slot says at
    once where its scores belong, but for the few that share their bin with a positive.
    """
    lowest, per_unit, bins = bins_over(positives, n, BINS_TO_COUNT)
    fill_slots(positives, n, lowest, per_unit, bins, slots)
    last = np.float32(bins - 1)
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


@numba.njit(nogil=True, cache=True)
def measure(
    weights: np.ndarray,
    sizes: np.ndarray,
    below: np.ndarray,
    equal: np.ndarray,
    n: int | np.int64,
    n_keys: int | np.int64,
    k: int,
    measures: np.ndarray,
) -> np.int64:
    """From the ranks of n distinct positives, lowest first: AUROC, average precision, precision at k, their chance.

    `weights` and `sizes` are the weight and the number of positives at each score; `below` and `equal` count all keys.
    Whole numbers up to the last division: no order of summation can change the AUROC. Returns the positives' weight.
    """
    n_positives, weight_total = np.int64(0), np.int64(0)
    for place in range(n):
        n_positives += sizes[place]
        weight_total += weights[place]
    n_negatives = n_keys - n_positives
    twice_won, weight_found, positives_found = np.int64(0), np.int64(0), np.int64(0)
    average_precision, among_first_k = 0.0, 0.0
    for place in range(n - 1, -1, -1):
        positives_found += sizes[place]
        weight_found += weights[place]
        negatives_below = below[place] - (n_positives - positives_found)
        twice_won += weights[place] * (2 * negatives_below + equal[place] - sizes[place])
        negatives_found = n_negatives - negatives_below
        average_precision += weights[place] * (weight_found / (weight_found + negatives_found))
        keys_above = n_keys - below[place] - equal[place]
        if keys_above < k:
            among_first_k += sizes[place] * min((k - keys_above) / equal[place], 1.0)
    measures[AUROC] = twice_won / (2.0 * weight_total * n_negatives)
    measures[AVERAGE_PRECISION] = average_precision / weight_total
    measures[PRECISION_AT_K] = among_first_k / min(k, n_keys)
    measures[CHANCE_AVERAGE_PRECISION] = weight_total / (weight_total + n_negatives)
    measures[CHANCE_PRECISION_AT_K] = n_positives / n_keys
    return weight_total


@numba.njit(nogil=True, cache=True)
def measure_range(
    row: np.ndarray,
    columns: np.ndarray,
    weights: np.ndarray,
    n: int | np.int64,
    k: int,
    space: Space,
    measures: np.ndarray,
) -> np.int64:
    """The measures of one row of scores with n positives; their total weight, 0 where nothing can be measured."""
    if n == 0 or n == row.size:
        return np.int64(0)
    unsorted, scores, weight, sizes, below, equal, between, starts, narrow_slots, slots = space
    for place in range(n):
        unsorted[place] = row[columns[place]]
    sort_with_weights(unsorted, weights, n, starts, scores, weight)
    distinct = merge_equal(scores, weight, sizes, n)
    if distinct <= COMPARED_ONE_BY_ONE:
        count_by_comparison(row, scores, distinct, below, equal)
    elif distinct <= MOST_IN_NARROW_SLOTS:
        count_by_bins(row, scores, distinct, narrow_slots, between, below, equal)
    else:
        count_by_bins(row, scores, distinct, slots, between, below, equal)
    return measure(weight, sizes, below, equal, distinct, row.size, k, measures)


@numba.njit(nogil=True, cache=True)
def working_space(n: int | np.int64) -> Space:
    """Arrays for rows of at most n positives."""
    return (
        np.empty(n, np.float32),
        np.empty(n + 1, np.float32),
        np.empty(n, np.int64),
        np.empty(n, np.int64),
        np.empty(n, np.int64),
        np.empty(n, np.int64),
        np.empty(2 * n + 2, np.int32),
        np.empty(MOST_BINS + 1, np.int32),
        np.empty(MOST_BINS + 1, np.uint16),
        np.empty(MOST_BINS + 1, np.uint32),
    )


@numba.njit(nogil=True, cache=True)
def measure_rows(
    scores: np.ndarray,
    asked: np.ndarray,
    indptr: np.ndarray,
    keys: np.ndarray,
    weights: np.ndarray,
    columns: np.ndarray,
    bounds: np.ndarray,
    k: int,
    measures: np.ndarray,
) -> None:
    """The measures of each row of scores against the positives of the query token that is asked of it, if any (−1).

    The positives of token t are keys[indptr[t] : indptr[t + 1]]; the score of key j stands in column columns[j]. The
    columns from bounds[s] to bounds[s + 1] are stratum s: measured within strata, averaged by the positives' weight.
    NaN where no stratum has both positives and negatives.
    """
    most = np.int64(0)
    for token in asked:
        if token >= 0:
            most = max(most, indptr[token + 1] - indptr[token])
    space = working_space(most)
    inside, inside_weights, part = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(MEASURES)
    for row in range(len(asked)):
        first, end = np.int64(0), np.int64(0)
        if asked[row] >= 0:
            first, end = indptr[asked[row]], indptr[asked[row] + 1]
        total_weight = np.int64(0)
        for number in range(MEASURES):
            measures[row, number] = 0
        for stratum in range(len(bounds) - 1):
            low, high = bounds[stratum], bounds[stratum + 1]
            n = keep_inside(keys, weights, first, end, columns, low, high, inside, inside_weights)
            weight = measure_range(scores[row, low:high], inside, inside_weights, n, k, space, part)
            total_weight += weight
            for number in range(MEASURES):
                measures[row, number] += weight * part[number] if weight else 0.0
        for number in range(MEASURES):
            measures[row, number] = measures[row, number] / total_weight if total_weight else np.nan


@numba.njit(nogil=True, cache=True)
def keep_inside(
    keys: np.ndarray,
    weights: np.ndarray,
    first: int,
    end: int,
    columns: np.ndarray,
    low: int,
    high: int,
    inside: np.ndarray,
    inside_weights: np.ndarray,
) -> np.int64:
    """Copy the positives first … end − 1 whose columns lie from low to high, as places in that range; how many?"""
    n = np.int64(0)
    for place in range(first, end):
        column = columns[keys[place]]
        if low <= column < high:
            inside[n], inside_weights[n] = column - low, weights[place]
            n += 1
    return n
