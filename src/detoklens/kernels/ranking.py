"""Compiled loops over rows of scores: AUROC, average precision and precision at k of each row's positives.

All of these follow from the number of keys below and equal to each positive (`kernels.count_below`). A row is read once
for all lists of positives that it ranks: its query's, those of another query, its query's with keys exchanged for
equally frequent ones, and those of some partners. It is read once more for ranks among keys of the same stratum. All
positives of a row are sorted together. A list then needs no sorting: it sets a bit at each positive's place.

Counts are integers up to the last division.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.core import types
from numba.extending import intrinsic

from detoklens.kernels.compiling import compiled
from detoklens.kernels.count_below import MOST_BINS, count_ranks, sort_with_weights

STEP = np.uint64(0x9E3779B97F4A7C15)  # of a Weyl sequence: 2⁶⁴ / the golden ratio
MIX, MIX_AGAIN = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
HALF_WORD = np.uint64(32)


@compiled(from_python=False)
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


@compiled()
def rank_rows(scores: np.ndarray, columns: np.ndarray, ranks: np.ndarray) -> None:
    """Rank of one column in each row: 1 + the number of larger scores + that of equal ones in earlier columns."""
    for row in range(len(columns)):
        place = columns[row]
        own = scores[row, place]
        above = 1
        for column in range(place):
            above += scores[row, column] >= own
        for column in range(place + 1, scores.shape[1]):
            above += scores[row, column] > own
        ranks[row] = above


@compiled()
def resampled_medians(values: np.ndarray, order: np.ndarray, times: np.ndarray, medians: np.ndarray) -> None:
    """The median of each resample; `times` says how often each value counts, `order` sorts the values."""
    for resample in range(len(times)):
        total = times[resample].sum()
        passed, lower, found = 0.0, -1.0, False
        medians[resample] = values[order[0]]
        for place in order:
            passed += times[resample, place]
            if not found and passed > (total - 1) // 2:
                lower, found = values[place], True
            if passed > total // 2:
                medians[resample] = (lower + values[place]) / 2
                break


MEASURES = 5
AUROC, AVERAGE_PRECISION, PRECISION_AT_K, CHANCE_AVERAGE_PRECISION, CHANCE_PRECISION_AT_K = range(MEASURES)

LISTS = 3
OWN, OTHER_QUERY, EXCHANGED = range(LISTS)
"""The positives that a row ranks: its query's, another query's, or its query's with each key exchanged."""

CELLS = 5
MATCHED = LISTS
"""Measurements of a row: cell l is list l against all keys, cell MATCHED + l against keys of the same stratum.
Keys exchanged within strata have no matched cell: their expected AUROC within strata is ½ for any scores."""

SORT_ALL = 4
"""With more positives than a fourth of the keys, all keys are sorted: then no rank has to be counted."""

Space = tuple[np.ndarray, ...]
ONE, WORD, IN_WORD = np.uint64(1), np.uint64(6), np.uint64(63)


@intrinsic
def count_ones(_: Any, word: Any) -> tuple[Any, Any]:
    """The number of set bits of a 64-bit word."""
    return types.int64(word), lambda _context, builder, _signature, arguments: builder.ctpop(arguments[0])


@compiled(from_python=False)
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


def working_space(n: int) -> Space:
    """Arrays to sort and count at most n positives: their scores, unsorted and in order; ranks of scores; bins."""
    return (
        np.empty(n, np.float32),
        np.empty(n + 1, np.float32),
        np.empty((2, n), np.int64),
        np.empty(2 * n + 2, np.int32),
        np.empty(MOST_BINS + 1, np.int32),
        np.empty(MOST_BINS + 1, np.uint16),
        np.empty(MOST_BINS + 1, np.uint32),
    )


@compiled(from_python=False)
def rank_columns(
    row: np.ndarray,
    chosen: np.ndarray,
    n: int | np.int64,
    space: Space,
    order: np.ndarray,
    place: np.ndarray,
    ties: np.ndarray,
    ranks: np.ndarray,
) -> None:
    """Sort n columns by score into `order`; `place` is the inverse.

    The column at place p is tied with those from ties[0, p] to ties[1, p]. In the whole row, ranks[0, p] scores are
    below its score, ranks[1, p] are not above it.
    """
    unsorted, scores, counted, between, starts, narrow_slots, slots = space
    for number in range(n):
        unsorted[number] = row[chosen[number]]
    sort_with_weights(unsorted, chosen, n, starts, scores, order)
    first, distinct = np.int64(0), np.int64(0)
    for number in range(n):
        place[order[number]] = number
        if number + 1 == n or scores[number + 1] != scores[number]:
            scores[distinct] = scores[number]
            distinct += 1
            for tied in range(first, number + 1):
                ties[0, tied], ties[1, tied] = first, number + 1
            first = np.int64(number + 1)
    if n == len(row):
        for number in range(n):  # assigning one array's slice to another's takes four seconds more to compile
            ranks[0, number], ranks[1, number] = ties[0, number], ties[1, number]
        return
    count_ranks(row, scores, distinct, between, narrow_slots, slots, counted[0], counted[1])
    level = np.int64(-1)
    for number in range(n):
        level += ties[0, number] == number
        ranks[0, number], ranks[1, number] = counted[0, level], counted[0, level] + counted[1, level]


@compiled(from_python=False)
def rank_within_strata(
    row: np.ndarray,
    by_stratum: np.ndarray,
    starts: np.ndarray,
    order: np.ndarray,
    ties: np.ndarray,
    bounds: np.ndarray,
    space: Space,
    ranks: np.ndarray,
) -> None:
    """The same ranks among the scores of a column's own stratum, for the places in `by_stratum`."""
    _, scores, counted, between, _, narrow_slots, slots = space
    for stratum in range(len(bounds) - 1):
        places = by_stratum[starts[stratum] : starts[stratum + 1]]
        distinct, last_tie = np.int64(0), np.int64(-1)
        for place in places:
            if ties[0, place] != last_tie:
                scores[distinct], last_tie = row[order[place]], ties[0, place]
                distinct += 1
        if distinct:
            part = row[bounds[stratum] : bounds[stratum + 1]]
            count_ranks(part, scores, distinct, between, narrow_slots, slots, counted[0], counted[1])
        level, last_tie = np.int64(-1), np.int64(-1)
        for place in places:
            level += ties[0, place] != last_tie
            last_tie = ties[0, place]
            ranks[0, place], ranks[1, place] = counted[0, level], counted[0, level] + counted[1, level]


@compiled(from_python=False)
def take_places(bits: np.ndarray, places: np.ndarray) -> np.int64:
    """Write the places of all set bits, in order, and clear them; return their number."""
    n = np.int64(0)
    for word in range(len(bits)):
        left = bits[word]
        while left:
            places[n] = 64 * word + count_ones((left & (~left + ONE)) - ONE)
            left &= left - ONE
            n += 1
        bits[word] = 0
    return n


@compiled(from_python=False)
def sort_by_stratum(
    places: np.ndarray, order: np.ndarray, strata: np.ndarray, starts: np.ndarray, sorted_places: np.ndarray
) -> None:
    """Sort places by stratum, within it by score; those of stratum s are from starts[s] to starts[s + 1]."""
    starts[:] = 0
    for place in places:
        starts[strata[order[place]] + 1] += 1
    for stratum in range(len(starts) - 1):
        starts[stratum + 1] += starts[stratum]
    free = starts[:-1].copy()
    for place in places:
        stratum = strata[order[place]]
        sorted_places[free[stratum]] = place
        free[stratum] += 1


@compiled(from_python=False)
def measure_places(
    places: np.ndarray,
    weight_at: np.ndarray,
    ties: np.ndarray,
    ranks: np.ndarray,
    n_keys: int | np.int64,
    k: int,
    levels: np.ndarray,
    measures: np.ndarray,
) -> np.int64:
    """`measure` for positives at these places, which are in order, with all other of `n_keys` keys as negatives."""
    distinct, last_tie = np.int64(0), np.int64(-1)
    for place in places:
        if ties[0, place] != last_tie:
            last_tie = ties[0, place]
            levels[0, distinct], levels[1, distinct] = 0, 0
            levels[2, distinct], levels[3, distinct] = ranks[0, place], ranks[1, place] - ranks[0, place]
            distinct += 1
        levels[0, distinct - 1] += weight_at[place]
        levels[1, distinct - 1] += 1
    return measure(levels[0], levels[1], levels[2], levels[3], distinct, n_keys, k, measures)


@compiled(from_python=False)
def measure_within_strata(
    by_stratum: np.ndarray,
    starts: np.ndarray,
    weight_at: np.ndarray,
    ties: np.ndarray,
    ranks: np.ndarray,
    bounds: np.ndarray,
    k: int,
    levels: np.ndarray,
    measures: np.ndarray,
) -> None:
    """The same within each stratum, averaged by the weight of its positives; NaN where no stratum has both kinds."""
    total_weight, part = np.int64(0), np.empty(MEASURES)
    measures[:] = 0
    for stratum in range(len(bounds) - 1):
        places, size = by_stratum[starts[stratum] : starts[stratum + 1]], bounds[stratum + 1] - bounds[stratum]
        weight = measure_places(places, weight_at, ties, ranks, size, k, levels, part)
        total_weight += weight
        if weight:
            measures += weight * part
    measures /= total_weight if total_weight else np.nan


@compiled(from_python=False)
def set_bits(columns: np.ndarray, weights: np.ndarray, place: np.ndarray, bits: np.ndarray, at: np.ndarray) -> None:
    """Set a bit at the place of each column, and keep its weight there."""
    for number in range(len(columns)):
        found = place[columns[number]]
        bits[found >> 6] |= ONE << np.uint64(found & 63)
        at[found] = weights[number]


@compiled(from_python=False)
def bits_before(place: np.int64, bits: np.ndarray, before_word: np.ndarray) -> np.int64:
    """The number of set bits before a place."""
    word = place >> 6
    return before_word[word] + count_ones(bits[word] & ((ONE << np.uint64(place & 63)) - ONE))


@compiled(from_python=False)
def auroc_of_columns(
    columns: np.ndarray,
    weights: np.ndarray,
    place: np.ndarray,
    ties: np.ndarray,
    ranks: np.ndarray,
    n_keys: int | np.int64,
    bits: np.ndarray,
    before_word: np.ndarray,
) -> float:
    """The AUROC of positives against all other keys, NaN without any; `bits` are 0 before and after.

    A positive wins twice against negatives below and once against equal ones: its weight times the negatives below plus
    its weight times those not above.
    """
    n_negatives = n_keys - len(columns)
    if len(columns) == 0 or n_negatives == 0:
        return np.nan
    for column in columns:
        found = place[column]
        bits[found >> 6] |= ONE << np.uint64(found & 63)
    passed = np.int64(0)
    for word in range(len(bits)):
        before_word[word] = passed
        passed += count_ones(bits[word])
    before_word[len(bits)] = passed
    twice_won, weight_total = np.int64(0), np.int64(0)
    for number in range(len(columns)):
        found = np.int64(place[columns[number]])
        below, not_above = np.int64(ranks[0, found]), np.int64(ranks[1, found])
        before = bits_before(found, bits, before_word)
        positives = 2 * before + 1
        if not_above - below > 1:
            positives = bits_before(np.int64(ties[0, found]), bits, before_word)
            positives += bits_before(np.int64(ties[1, found]), bits, before_word)
        twice_won += weights[number] * (below + not_above - positives)
        weight_total += weights[number]
    bits[:] = 0
    return twice_won / (2.0 * weight_total * n_negatives)


@compiled(from_python=False)
def gather(
    token: int | np.int64,
    indptr: np.ndarray,
    columns: np.ndarray,
    weights: np.ndarray,
    first: int | np.int64,
    listed: np.ndarray,
    weight: np.ndarray,
) -> np.int64:
    """Copy the columns and weights of a token's positives to `first` and on; return their end."""
    for pair in range(indptr[token], indptr[token + 1]):
        listed[first], weight[first] = columns[pair], weights[pair]
        first += 1
    return np.int64(first)


class RowSpace(NamedTuple):
    """Arrays that `measure_rows` works in, allocated by numpy: compiled, their allocation takes a second to compile."""

    positives: Space
    listed: np.ndarray
    weight: np.ndarray
    chosen: np.ndarray
    order: np.ndarray
    place: np.ndarray
    ties: np.ndarray
    ranks: np.ndarray
    own_ranks: np.ndarray
    places: np.ndarray
    by_stratum: np.ndarray
    weight_at: np.ndarray
    bits: np.ndarray
    before_word: np.ndarray
    chosen_for: np.ndarray
    levels: np.ndarray
    members: np.ndarray
    taken: np.ndarray
    swapped: np.ndarray
    starts: np.ndarray
    shifted: np.ndarray

    @classmethod
    def of(cls, n_keys: int, n_strata: int, most: int) -> RowSpace:
        """For so many keys and strata, and at most so many positives in a row's three lists together."""
        return cls(
            positives=working_space(n_keys),
            listed=np.empty(most, np.int64),
            weight=np.empty(most, np.int64),
            chosen=np.empty(n_keys, np.int32),
            order=np.empty(n_keys, np.int32),
            place=np.empty(n_keys, np.int32),
            ties=np.empty((2, n_keys), np.int32),
            ranks=np.empty((2, n_keys), np.int32),
            own_ranks=np.empty((2, n_keys), np.int32),
            places=np.empty(n_keys, np.int64),
            by_stratum=np.empty(n_keys, np.int64),
            weight_at=np.empty(n_keys, np.int64),
            bits=np.zeros(n_keys // 64 + 1, np.uint64),
            before_word=np.empty(n_keys // 64 + 2, np.int64),
            chosen_for=np.full(n_keys, -1),
            levels=np.empty((4, n_keys), np.int64),
            members=np.arange(n_keys),
            taken=np.zeros(n_strata + 1, np.int64),
            swapped=np.empty(most, np.int64),
            starts=np.empty(n_strata + 1, np.int64),
            shifted=np.empty(n_keys, np.float32),
        )


def measure_rows(
    scores: np.ndarray,
    rows: np.ndarray,
    shift: np.ndarray,
    queries: np.ndarray,
    others: np.ndarray,
    partners: np.ndarray,
    indptr: np.ndarray,
    columns: np.ndarray,
    weights: np.ndarray,
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
    The positives of token t are columns[indptr[t] : indptr[t + 1]]; columns bounds[s] to bounds[s + 1] are stratum s,
    which is strata[column]. Row r ranks the positives of queries[r], of others[r] (unless empty) and, with `exchanged`,
    those of queries[r] with exchanged keys; with `matched`, also against keys of the same stratum. `partner_aurocs`
    receives the AUROC of the positives of partners[draw, r], against all keys or, with `partners_matched`, against
    those of the same stratum.
    """
    sizes = np.diff(indptr)
    most = 2 * sizes[queries] + (sizes[others] if len(others) else 0)
    space = RowSpace.of(len(strata), len(bounds) - 1, int(most.max(initial=1)))
    pairs = (indptr, columns, weights, bounds, strata)
    options = (matched, exchanged, partners_matched, seed, k)
    _measure_rows(space, scores, rows, shift, queries, others, partners, *pairs, *options, measures, partner_aurocs)


@compiled()
def _measure_rows(
    space: RowSpace,
    scores: np.ndarray,
    rows: np.ndarray,
    shift: np.ndarray,
    queries: np.ndarray,
    others: np.ndarray,
    partners: np.ndarray,
    indptr: np.ndarray,
    columns: np.ndarray,
    weights: np.ndarray,
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
    n_keys = len(strata)
    listed, weight, chosen, order, place = space.listed, space.weight, space.chosen, space.order, space.place
    ties, ranks, own_ranks, places, by_stratum = (
        space.ties,
        space.ranks,
        space.own_ranks,
        space.places,
        space.by_stratum,
    )
    weight_at, bits, before_word, chosen_for = space.weight_at, space.bits, space.before_word, space.chosen_for
    levels, members, taken, swapped, starts = space.levels, space.members, space.taken, space.swapped, space.starts
    ends, of_partner = np.zeros(LISTS + 1, np.int64), np.empty(MEASURES)
    measures[:] = np.nan
    for row in range(len(queries)):
        ends[1] = gather(queries[row], indptr, columns, weights, np.int64(0), listed, weight)
        ends[2] = gather(others[row], indptr, columns, weights, ends[1], listed, weight) if len(others) else ends[1]
        ends[3] = ends[2]
        if exchanged:
            ends[3] = gather(queries[row], indptr, columns, weights, ends[2], listed, weight)
            stand_ins = listed[ends[2] :]
            draw_stand_ins(listed, ends[1], strata, bounds, seed, queries[row], members, taken, swapped, stand_ins)
        n, n_positives = np.int64(0), ends[3]
        for partner in partners[:, row]:
            n_positives += indptr[partner + 1] - indptr[partner]
        if n_positives * SORT_ALL > n_keys:
            n = np.int64(n_keys)
            for column in range(n_keys):
                chosen[column] = column
        else:
            for column in listed[: ends[3]]:
                if chosen_for[column] != row:
                    chosen_for[column], chosen[n] = row, column
                    n += 1
            for partner in partners[:, row]:
                for column in columns[indptr[partner] : indptr[partner + 1]]:
                    if chosen_for[column] != row:
                        chosen_for[column], chosen[n] = row, column
                        n += 1
        row_scores = scores[rows[row]]
        if len(shift):
            for column in range(len(shift)):
                space.shifted[column] = row_scores[column] + shift[column]
            row_scores = space.shifted
        rank_columns(row_scores[:n_keys], chosen, n, space.positives, order, place, ties, ranks)
        used = bits[: n // 64 + 1]
        if matched or partners_matched:
            n_ranked = n
            if partners_matched:
                for number in range(n):
                    places[number] = number
            else:
                set_bits(listed[: ends[2]], weight, place, used, weight_at)
                n_ranked = take_places(used, places)
            sort_by_stratum(places[:n_ranked], order, strata, starts, by_stratum)
            rank_within_strata(row_scores, by_stratum, starts, order, ties, bounds, space.positives, own_ranks)

        for number in range(LISTS):
            first, end = ends[number], ends[number + 1]
            if first == end:
                continue
            set_bits(listed[first:end], weight[first:end], place, used, weight_at)
            take_places(used, places)
            into = measures[number, row]
            if measure_places(places[: end - first], weight_at, ties, ranks, n_keys, k, levels, into) == 0:
                into[:] = np.nan
            if matched and number != EXCHANGED:
                sort_by_stratum(places[: end - first], order, strata, starts, by_stratum)
                into = measures[MATCHED + number, row]
                measure_within_strata(by_stratum, starts, weight_at, ties, own_ranks, bounds, k, levels, into)
        for draw in range(len(partners)):
            first, end = indptr[partners[draw, row]], indptr[partners[draw, row] + 1]
            positives, their_weights = columns[first:end], weights[first:end]
            if partners_matched:
                set_bits(positives, their_weights, place, used, weight_at)
                n_places = take_places(used, places)
                sort_by_stratum(places[:n_places], order, strata, starts, by_stratum)
                measure_within_strata(by_stratum, starts, weight_at, ties, own_ranks, bounds, k, levels, of_partner)
                partner_aurocs[draw, row] = of_partner[AUROC]
            else:
                partner_aurocs[draw, row] = auroc_of_columns(
                    positives, their_weights, place, ties, ranks, n_keys, used, before_word
                )


@compiled()
def rank_correlations(values: np.ndarray, order: np.ndarray, unit_ranks: np.ndarray) -> np.ndarray:
    """The correlation of each row's ranks with other ranks of mean 0 and length 1; ties share their mean rank.

    `order` sorts each row. It is 0 for a row of equal values.
    """
    n_rows, n_values = values.shape
    found = np.empty(n_rows)
    for row in range(n_rows):
        product, squares, begin, together = 0.0, 0.0, 0, 0.0
        for place in range(n_values):
            together += unit_ranks[order[row, place]]
            if place + 1 < n_values and values[row, order[row, place + 1]] == values[row, order[row, place]]:
                continue
            rank = (begin + place - n_values + 1) / 2
            product += rank * together
            squares += rank * rank * (place + 1 - begin)
            begin, together = place + 1, 0.0
        found[row] = product / np.sqrt(squares) if squares > 0 else 0.0
    return found
