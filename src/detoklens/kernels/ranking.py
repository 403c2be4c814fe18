"""Compiled loops over rows of scores: AUROC, average precision and precision at k of each row's positives.

All of these follow from the number of keys below and equal to each positive (`kernels.count_below`). A row is read once
for all of its measures: with its own positives, with another token's, with its own exchanged for equally frequent keys,
and with those of some tokens of the same class; against all keys, and against keys of the positive's own stratum.
Counts are integers up to the last division.
"""

from __future__ import annotations

import numpy as np

from detoklens.kernels.compiling import compiled
from detoklens.kernels.count_below import (
    COMPARED_ONE_BY_ONE,
    MOST_BINS,
    MOST_IN_NARROW_SLOTS,
    count_by_comparison,
    count_in_bins,
    prepare_bins,
    sort_with_weights,
)

STEP = np.uint64(0x9E3779B97F4A7C15)  # of a Weyl sequence: 2⁶⁴ / the golden ratio
MIX, MIX_AGAIN = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
HALF_WORD = np.uint64(32)


@compiled()
def mixed(word: np.uint64) -> np.uint64:
    """Mix the bits of a word (the finaliser of SplitMix64)."""
    word = (word ^ (word >> np.uint64(30))) * MIX
    word = (word ^ (word >> np.uint64(27))) * MIX_AGAIN
    return word ^ (word >> np.uint64(31))


@compiled()
def draw_stand_ins(
    columns: np.ndarray,
    n: int | np.int64,
    strata: np.ndarray,
    bounds: np.ndarray,
    seed: int | np.int64,
    token: int | np.int64,
    members: np.ndarray,
    taken: np.ndarray,
    swapped: np.ndarray,
    stand_ins: np.ndarray,
) -> None:
    """For each of n distinct columns, draw a column of its stratum without replacement, uniformly.

    `strata[c]` is the stratum of column c, from bounds[s] to bounds[s + 1]. These are the first draws of a shuffle of
    each stratum's `members`, which are 0, 1, 2 … before and after; `taken`, one per stratum, is 0 before and after.
    """
    state = mixed(np.uint64(seed) * STEP + np.uint64(1)) ^ mixed(np.uint64(token) * STEP + np.uint64(2))
    for place in range(n):
        stratum = strata[columns[place]]
        first = bounds[stratum] + taken[stratum]
        state += STEP
        left = np.uint64(bounds[stratum + 1] - first)
        swapped[place] = first + np.int64(((mixed(state) >> HALF_WORD) * left) >> HALF_WORD)
        members[first], members[swapped[place]] = members[swapped[place]], members[first]
        stand_ins[place] = members[first]
        taken[stratum] += 1
    for place in range(n - 1, -1, -1):
        stratum = strata[columns[place]]
        taken[stratum] -= 1
        first = bounds[stratum] + taken[stratum]
        members[first], members[swapped[place]] = members[swapped[place]], members[first]


MEASURES = 5
AUROC, AVERAGE_PRECISION, PRECISION_AT_K, CHANCE_AVERAGE_PRECISION, CHANCE_PRECISION_AT_K = range(MEASURES)

TRIALS = 3
OWN, ANOTHER_QUERYS, EXCHANGED = range(TRIALS)
"""The positives of a trial: the query's own, another query's, or its own with each key exchanged."""

CELLS = 5
MATCHED = TRIALS
"""Measurements of a row: cell t is trial t against all keys, cell MATCHED + t against keys of the same stratum.
Keys exchanged within strata have no matched cell: their expected AUROC within strata is ½ for any scores."""

Space = tuple[np.ndarray, ...]


@compiled()
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
    """From the ranks of positives at n scores, lowest first: AUROC, average precision, precision at k, their chance.

    `weights` and `sizes` are the weight and the number of positives at each score (none is skipped); `below` and
    `equal` count all keys. Whole numbers up to the last division: no order of summation can change the AUROC. Returns
    the positives' weight, 0 where nothing can be measured.
    """
    n_positives, weight_total = np.int64(0), np.int64(0)
    for place in range(n):
        n_positives += sizes[place]
        weight_total += weights[place]
    n_negatives = n_keys - n_positives
    if n_positives == 0 or n_negatives == 0:
        return np.int64(0)
    twice_won, weight_found, positives_found = np.int64(0), np.int64(0), np.int64(0)
    average_precision, among_first_k = 0.0, 0.0
    for place in range(n - 1, -1, -1):
        if sizes[place] == 0:
            continue
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


@compiled()
def working_space(n: int | np.int64) -> Space:
    """Arrays for rows of at most n positives: their scores as they come, in order; their ranks; bins."""
    return (
        np.empty(n, np.float32),
        np.empty(n + 1, np.float32),
        np.empty(2 * n + 2, np.int32),
        np.empty(MOST_BINS + 1, np.int32),
        np.empty(MOST_BINS + 1, np.uint16),
        np.empty(MOST_BINS + 1, np.uint32),
    )


@compiled()
def order_positives(
    row: np.ndarray, columns: np.ndarray, n: int | np.int64, space: Space, in_order: np.ndarray, level: np.ndarray
) -> np.int64:
    """Sort n positives by score into `in_order` (places) and `level` (ranks of scores); return the number of ranks."""
    unsorted, scores, _, starts, _, _ = space
    for place in range(n):
        unsorted[place] = row[columns[place]]
    sort_with_weights(unsorted, np.arange(n), n, starts, scores, in_order)
    distinct = np.int64(0)
    for place in range(n):
        if distinct == 0 or scores[place] != scores[distinct - 1]:
            scores[distinct] = scores[place]
            distinct += 1
        level[in_order[place]] = distinct - 1
    return distinct


@compiled()
def sort_by_stratum(
    columns: np.ndarray, n: int | np.int64, strata: np.ndarray, in_order: np.ndarray, starts: np.ndarray
) -> np.ndarray:
    """Places of the positives by stratum, within it by score; those of stratum s from starts[s] to starts[s + 1]."""
    starts[:] = 0
    for place in range(n):
        starts[strata[columns[place]] + 1] += 1
    for stratum in range(len(starts) - 1):
        starts[stratum + 1] += starts[stratum]
    free, sorted_places = starts[:-1].copy(), np.empty(n, np.int64)
    for order in range(n):
        place = in_order[order]
        stratum = strata[columns[place]]
        sorted_places[free[stratum]] = place
        free[stratum] += 1
    return sorted_places


@compiled()
def count_row(
    row: np.ndarray,
    bounds: np.ndarray,
    distinct: int | np.int64,
    level: np.ndarray,
    by_stratum: np.ndarray,
    starts: np.ndarray,
    space: Space,
    ranks: np.ndarray,
    own_ranks: np.ndarray,
) -> None:
    """Count keys below and equal: in the row for each level (`ranks`), in its own stratum for each positive."""
    _, scores, between, _, narrow_slots, slots = space
    one_by_one, narrow = distinct <= COMPARED_ONE_BY_ONE, distinct <= MOST_IN_NARROW_SLOTS
    lowest, per_unit, bins = np.float32(0), np.float32(0), 0
    if not one_by_one:
        prepared = prepare_bins(scores, distinct, narrow_slots) if narrow else prepare_bins(scores, distinct, slots)
        lowest, per_unit, bins = prepared
    ranks[:, :distinct] = 0
    here = np.empty((2, distinct), np.int64)
    for stratum in range(len(bounds) - 1):
        part = row[bounds[stratum] : bounds[stratum + 1]]
        if one_by_one:
            count_by_comparison(part, scores, distinct, here[0], here[1])
        elif narrow:
            count_in_bins(part, scores, distinct, lowest, per_unit, bins, narrow_slots, between, here[0], here[1])
        else:
            count_in_bins(part, scores, distinct, lowest, per_unit, bins, slots, between, here[0], here[1])
        for side in range(2):
            for place in range(distinct):
                ranks[side, place] += here[side, place]
        for place in by_stratum[starts[stratum] : starts[stratum + 1]]:
            own_ranks[0, place], own_ranks[1, place] = here[0, level[place]], here[1, level[place]]


@compiled()
def sort_by_trial(
    trial_of: np.ndarray, ends: np.ndarray, n: int | np.int64, in_order: np.ndarray, by_trial: np.ndarray
) -> None:
    """Places of the positives by trial, within it by score; those of trial t from ends[t] to ends[t + 1]."""
    free = ends[:-1].copy()
    for order in range(n):
        place = in_order[order]
        trial = trial_of[place]
        by_trial[free[trial]] = place
        free[trial] += 1


@compiled()
def measure_against_all(
    sorted_places: np.ndarray,
    weights: np.ndarray,
    level: np.ndarray,
    ranks: np.ndarray,
    n_keys: int | np.int64,
    k: int,
    levels: np.ndarray,
    measures: np.ndarray,
) -> None:
    """The measures of some positives, sorted by score, with all other keys as negatives; NaN where there are none.

    `levels` is working space for the weight, size and ranks of each distinct score.
    """
    distinct, last_level = np.int64(0), np.int64(-1)
    for place in sorted_places:
        if level[place] != last_level:
            last_level = level[place]
            levels[0, distinct], levels[1, distinct] = 0, 0
            levels[2, distinct], levels[3, distinct] = ranks[0, last_level], ranks[1, last_level]
            distinct += 1
        levels[0, distinct - 1] += weights[place]
        levels[1, distinct - 1] += 1
    if measure(levels[0], levels[1], levels[2], levels[3], distinct, n_keys, k, measures) == 0:
        measures[:] = np.nan


@compiled()
def measure_within_strata(
    first: int | np.int64,
    end: int | np.int64,
    weights: np.ndarray,
    level: np.ndarray,
    own_ranks: np.ndarray,
    by_stratum: np.ndarray,
    starts: np.ndarray,
    bounds: np.ndarray,
    k: int,
    measures: np.ndarray,
) -> None:
    """The same within each stratum, averaged by the weight of its positives; NaN where no stratum has both kinds."""
    total_weight, part = np.int64(0), np.empty(MEASURES)
    measures[:] = 0
    most = end - first
    level_weights, level_sizes = np.empty(most, np.int64), np.empty(most, np.int64)
    ranks = np.empty((2, most), np.int64)
    for stratum in range(len(bounds) - 1):
        distinct, last_level = np.int64(0), np.int64(-1)
        for place in by_stratum[starts[stratum] : starts[stratum + 1]]:
            if not first <= place < end:
                continue
            if level[place] != last_level:
                last_level = level[place]
                level_weights[distinct], level_sizes[distinct] = 0, 0
                ranks[0, distinct], ranks[1, distinct] = own_ranks[0, place], own_ranks[1, place]
                distinct += 1
            level_weights[distinct - 1] += weights[place]
            level_sizes[distinct - 1] += 1
        size = bounds[stratum + 1] - bounds[stratum]
        weight = measure(level_weights, level_sizes, ranks[0], ranks[1], distinct, size, k, part)
        total_weight += weight
        if weight:
            measures += weight * part
    measures /= total_weight if total_weight else np.nan


@compiled()
def most_positives(indptr: np.ndarray, asked: np.ndarray, another: np.ndarray, partners: np.ndarray) -> np.int64:
    """The most positives that any row may be asked for, all trials together."""
    most = np.int64(1)
    for row in range(len(asked)):
        n = 2 * (indptr[asked[row] + 1] - indptr[asked[row]])
        if len(another):
            n += indptr[another[row] + 1] - indptr[another[row]]
        for draw in range(len(partners)):
            n += indptr[partners[draw, row] + 1] - indptr[partners[draw, row]]
        most = max(most, n)
    return most


@compiled()
def measure_rows(
    scores: np.ndarray,
    rows: np.ndarray,
    shift: np.ndarray,
    asked: np.ndarray,
    another: np.ndarray,
    partners: np.ndarray,
    indptr: np.ndarray,
    keys: np.ndarray,
    weights: np.ndarray,
    columns: np.ndarray,
    bounds: np.ndarray,
    strata: np.ndarray,
    matched: bool,
    exchanged: bool,
    partners_matched: bool,
    seed: int,
    k: int,
    measures: np.ndarray,
    partner_aurocs: np.ndarray,
) -> None:
    """Write the measures of some rows of scores: cell × row × measure, NaN if undefined or not requested.

    Row r has the scores[rows[r]] plus, unless it is empty, `shift`, which has a number for each column.
    The positives of token t are keys[indptr[t] : indptr[t + 1]]; the score of key j is in column columns[j]; columns
    bounds[s] to bounds[s + 1] are stratum s, which is strata[column]. Row r is measured with the positives of asked[r],
    of another[r] (unless empty) and, with `exchanged`, with exchanged keys; with `matched`, also against keys of the
    same stratum. `partner_aurocs` receives the AUROC of the positives of partners[draw, r], against all keys or, with
    `partners_matched`, against those of the same stratum.
    """
    most = most_positives(indptr, asked, another, partners)
    space, found = working_space(most), np.empty(most, np.int64)
    weight, in_order, level = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    ranks, own_ranks = np.empty((2, most), np.int64), np.empty((2, most), np.int64)
    members, taken, swapped = np.arange(len(columns)), np.zeros(len(bounds), np.int64), np.empty(most, np.int64)
    starts, ends = np.empty(len(bounds), np.int64), np.empty(TRIALS + 1 + len(partners), np.int64)
    trial_of, by_trial, levels = np.empty(most, np.int64), np.empty(most, np.int64), np.empty((4, most), np.int64)
    of_partner, shifted = np.empty(MEASURES), np.empty(len(shift), scores.dtype)
    measures[:] = np.nan
    for row in range(len(asked)):
        ends[0] = 0
        ends[1] = gather(asked[row], indptr, keys, weights, columns, np.int64(0), found, weight)
        ends[2] = ends[1]
        if len(another):
            ends[2] = gather(another[row], indptr, keys, weights, columns, ends[1], found, weight)
        ends[3] = ends[2]
        if exchanged:
            ends[3] += ends[1]
            for place in range(ends[1]):  # an assignment of slices takes two seconds more to compile
                weight[ends[2] + place] = weight[place]
            draw_stand_ins(found, ends[1], strata, bounds, seed, asked[row], members, taken, swapped, found[ends[2] :])
        for draw in range(len(partners)):
            place, partner = TRIALS + draw, partners[draw, row]
            ends[place + 1] = gather(partner, indptr, keys, weights, columns, ends[place], found, weight)
        row_scores = scores[rows[row]]
        if len(shift):
            for column in range(len(shift)):
                shifted[column] = row_scores[column] + shift[column]
            row_scores = shifted
        distinct = order_positives(row_scores, found, ends[-1], space, in_order, level)
        for trial in range(len(ends) - 1):
            for place in range(ends[trial], ends[trial + 1]):
                trial_of[place] = trial
        sort_by_trial(trial_of, ends, ends[-1], in_order, by_trial)
        by_stratum = sort_by_stratum(found, ends[-1], strata, in_order, starts)
        count_row(row_scores, bounds, distinct, level, by_stratum, starts, space, ranks, own_ranks)
        for trial in range(TRIALS):
            first, end = ends[trial], ends[trial + 1]
            if first == end:
                continue
            into = measures[trial, row]
            measure_against_all(by_trial[first:end], weight, level, ranks, len(columns), k, levels, into)
            if matched and trial != EXCHANGED:
                into = measures[MATCHED + trial, row]
                measure_within_strata(first, end, weight, level, own_ranks, by_stratum, starts, bounds, k, into)
        for draw in range(len(partners)):
            first, end = ends[TRIALS + draw], ends[TRIALS + draw + 1]
            if partners_matched:
                measure_within_strata(first, end, weight, level, own_ranks, by_stratum, starts, bounds, k, of_partner)
            else:
                measure_against_all(by_trial[first:end], weight, level, ranks, len(columns), k, levels, of_partner)
            partner_aurocs[draw, row] = of_partner[AUROC]


@compiled()
def gather(
    token: int | np.int64,
    indptr: np.ndarray,
    keys: np.ndarray,
    weights: np.ndarray,
    columns: np.ndarray,
    first: int | np.int64,
    found: np.ndarray,
    weight: np.ndarray,
) -> np.int64:
    """Copy columns and weights of a token's positives to `first` and on; return their end."""
    for pair in range(indptr[token], indptr[token + 1]):
        found[first], weight[first] = columns[keys[pair]], weights[pair]
        first += 1
    return np.int64(first)
