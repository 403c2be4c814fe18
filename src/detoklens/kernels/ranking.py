"""Compiled loops over rows of scores: AUROC, average precision and precision at k of each row's positives.

All of it follows from how many keys score below each positive and how many the same (`kernels.below`). Everything is
counted in whole numbers up to the last division.
"""

import numba
import numpy as np

from detoklens.kernels.below import (
    COMPARED_ONE_BY_ONE,
    MOST_BINS,
    MOST_IN_NARROW_SLOTS,
    count_by_bins,
    count_by_comparison,
    merge_equal,
    sort_with_weights,
)

MEASURES = 5
AUROC, AVERAGE_PRECISION, PRECISION_AT_K, CHANCE_AVERAGE_PRECISION, CHANCE_PRECISION_AT_K = range(MEASURES)

Space = tuple[np.ndarray, ...]


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
    """The measures of each row of scores against the positives of the query token that is asked of it.

    The positives of token t are keys[indptr[t] : indptr[t + 1]]; the score of key j stands in column columns[j]. The
    columns from bounds[s] to bounds[s + 1] are stratum s: measured within strata, averaged by the positives' weight.
    NaN where no stratum has both positives and negatives.
    """
    most = np.int64(0)
    for token in asked:
        most = max(most, indptr[token + 1] - indptr[token])
    space = working_space(most)
    inside, inside_weights, part = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(MEASURES)
    for row in range(len(asked)):
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
