"""AUROC of Tᵉᵉ against pairs of tokens that belong together, with its controls.

For a query token i, keys j with weight w_j > 0 are positives, all others negatives (weight 1); Tᵉᵉ[i, j] is the score.

    AUROC_i = Σ_pos Σ_neg w_pos ( [s_pos > s_neg] + ½ [s_pos = s_neg] ) / ( Σ w_pos · number of negatives )

A head's AUROC over query tokens has three means, each with a bootstrap interval:

seen      Σ a_i / number of defined a_i          all   Σ a_i / number of query tokens, an undefined a_i being 0
weighted  Σ w_i a_i / Σ w_i over defined a_i     w_i the total weight of the positives of query token i

A head, its nulls and the frequency baseline share their query tokens, so a resample gives a paired difference, whose
interval is much narrower than those of the two means.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Float32, Int, Int64

from detoklens.errors import CountsError, RangeError
from detoklens.kernels import product
from detoklens.kernels.ranking import AUROC, CELLS, EXCHANGED, MATCHED, MEASURES, OTHER_QUERY, OWN, measure_rows
from detoklens.measures.chance import Interval, interval, resampled
from detoklens.measures.positives import (
    DERANGEMENTS,
    Positives,
    derange_within,
    exchange_groups,
    frequency_ranks,
    frequency_strata,
)
from detoklens.measures.ranking import scores_of
from detoklens.parallel import Arrays, Runner, one_core_each, thread_map
from detoklens.scores.affinity import Affinity
from detoklens.scores.token_ids import check_range

FEWEST_PANELS, MOST_PANELS = 8, 20
BLOCK_BYTES = 1 << 25
"""Size of a block's scores: 120 query tokens of GPT-2's vocabulary take 24 MB."""


@dataclass(frozen=True)
class RankingOptions:
    """How keys are ranked.

    `matched` restricts negatives to the positive's frequency stratum, with `per_octave` strata per doubling of counts.
    `controls` adds the nulls and the frequency baseline, as far as token counts and groups are known.
    """

    k: int = 10
    matched: bool = False
    controls: bool = True
    seed: int = 0
    per_octave: int = 1


def less_mean_query(affinity: Affinity, shares: Float[np.ndarray, "token"]) -> Float[np.ndarray, "head key"]:
    """What splitting off a mean adds to the score of each key, apart from a number per query: −mean query · key."""
    means = [(shares @ query.astype(np.float64)).astype(query.dtype)[None] for query in affinity.query]
    scores = (
        product.multiply(product.query_panels(query), product.key_panels(affinity.key_of(head)))[0]
        for head, query in enumerate(means)
    )
    return -np.stack(list(scores))[:, : affinity.vocab_size]


@dataclass(frozen=True)
class QuerySet:
    """Query tokens, and what is added to the score of each head and key: see `less_mean_query`."""

    tokens: Sequence[int] | Int64[np.ndarray, "query"]
    shift: Float[np.ndarray, "head key"] | None = None


@dataclass(frozen=True)
class Measures:
    """The measures of each query token, NaN where undefined; the last axis is that of `kernels.ranking`.

    The plain nulls have the first measure only, the AUROC.
    """

    query_tokens: Int64[np.ndarray, "query"]
    heads: Float[np.ndarray, "head query measure"]
    shuffled_queries: Float[np.ndarray, "head query 1"] | None
    permuted_keys: Float[np.ndarray, "head query 1"] | None
    frequency: Float[np.ndarray, "query measure"] | None
    within: Mapping[str, Float[np.ndarray, "head query"]]
    """The AUROC with queries exchanged within groups, by name of the null, a mean over draws; NaN for a token alone."""
    matched: Measures | None = None
    """The same against frequency-matched negatives, if counts are known."""
    n_strata: int | None = None


@dataclass(frozen=True)
class Rows:
    """The rows of scores that a query set needs, and the tokens whose positives each row ranks as nulls."""

    tokens: Int64[np.ndarray, "row"]
    others: Int64[np.ndarray, "row"]
    partners: Mapping[str, Int64[np.ndarray, "draw row"]]

    def between(self, first: int, last: int) -> slice:
        """The rows of the query tokens from `first` to `last`."""
        begin, end = np.searchsorted(self.tokens, [first, last + 1])
        return slice(int(begin), int(end))


class Scorers:
    """Scores of some queries in every head, and by key frequency: packed factors, and one score buffer per thread."""

    def __init__(
        self,
        affinity: Affinity,
        token_counts: Int64[np.ndarray, "token"] | None,
        queries: Int64[np.ndarray, "query"],
        key_order: Int64[np.ndarray, "token"],
        workers: int,
        query_ids: Int64[np.ndarray, "query"] | None = None,
    ) -> None:
        self.queries, self.n_panels = queries, panels_of_block(len(key_order))
        places = queries if query_ids is None else np.searchsorted(query_ids, queries)
        query_factors, key_factors = list(affinity.query), list(affinity.shared_key)
        self._keys_of = list(affinity.own_keys or range(affinity.n_heads))
        if token_counts is not None:
            query_factors.append(np.ones((affinity.query.shape[1], 1), np.float32))
            self._keys_of.append(len(key_factors))
            key_factors.append(frequency_ranks(token_counts)[:, None])
        pack_queries, pack_keys = product.query_panels, product.key_panels
        self._queries = list(thread_map(lambda each: pack_queries(_single(each[places])), query_factors, workers))
        self._keys = list(thread_map(lambda each: pack_keys(_single(each[key_order])), key_factors, workers))
        self._of_thread = threading.local()

    def __len__(self) -> int:
        return len(self._queries)

    def close(self) -> None:
        """Free the factors, half a gigabyte for Qwen, before measures are arranged."""
        self._queries.clear()
        self._keys.clear()

    @property
    def n_blocks(self) -> int:
        return -(-len(self.queries) // (self.n_panels * product.QUERIES))

    def queries_of(self, block: int) -> Int64[np.ndarray, "query"]:
        n = self.n_panels * product.QUERIES
        return self.queries[block * n : (block + 1) * n]

    def scores(self, scorer: int, block: int) -> Float32[np.ndarray, "query key"]:
        """The scores of a block of queries, until the same thread computes the next ones."""
        keys = self._keys[self._keys_of[scorer]]
        if not hasattr(self._of_thread, "buffer"):  # allocating one per block takes a tenth of the time
            size = self.n_panels * product.QUERIES * keys[:, 0].size
            self._of_thread.buffer = np.empty(size, np.float32)
        panels = self._queries[scorer][block * self.n_panels : (block + 1) * self.n_panels]
        return product.multiply(panels, keys, self._of_thread.buffer)


def _single(vectors: Float[np.ndarray, "row d_head"]) -> Float32[np.ndarray, "row d_head"]:
    return vectors.astype(np.float32, copy=False)


def panels_of_block(vocab_size: int) -> int:
    return int(np.clip(BLOCK_BYTES // (4 * vocab_size * product.QUERIES), FEWEST_PANELS, MOST_PANELS))


def measure_heads(
    affinity: Affinity,
    positives: Positives,
    query_tokens: Sequence[int] | Int64[np.ndarray, "query"],
    token_counts: Int64[np.ndarray, "token"] | None = None,
    options: RankingOptions | None = None,
    runner: Runner | None = None,
    groups: Mapping[str, Int64[np.ndarray, "token"]] | None = None,
) -> Measures:
    """AUROC and precision of every head for these query tokens against these positives.

    `groups` name the nulls that exchange queries within a group of tokens, such as orthographic classes; where counts
    are known, each group is split into frequency bands. Blocks of query tokens run on the runner's threads.
    """
    return measure_query_sets(affinity, positives, [QuerySet(query_tokens)], token_counts, options, runner, groups)[0]


def measure_query_sets(
    affinity: Affinity,
    positives: Positives,
    query_sets: Sequence[QuerySet],
    token_counts: Int64[np.ndarray, "token"] | None = None,
    options: RankingOptions | None = None,
    runner: Runner | None = None,
    groups: Mapping[str, Int64[np.ndarray, "token"]] | None = None,
    query_ids: Int64[np.ndarray, "query"] | None = None,
) -> list[Measures]:
    """The same for several sets of query tokens, or shifted scores; each score is computed once.

    The affinity may have the queries of some tokens only, `query_ids`: at least of those with positives.
    """
    options, runner = options or RankingOptions(), runner or Runner()
    if affinity.vocab_size != positives.vocab_size:
        raise RangeError(
            f"the model has {affinity.vocab_size} tokens, the positives {positives.vocab_size}; "
            "use the same tokenizer for both"
        )
    if options.matched and token_counts is None:
        raise CountsError("frequency-matched negatives need token counts; pass counts")
    strata = np.zeros(positives.vocab_size, np.int64)
    if token_counts is not None:
        strata = frequency_strata(token_counts, options.per_octave)
    order = np.argsort(strata, kind="stable")  # column c of the scores holds key order[c]
    columns = np.argsort(order).astype(np.int32)[positives.keys]
    bounds = np.concatenate([[0], np.cumsum(np.bincount(strata))])

    all_rows = [_rows(each, positives, token_counts, options, groups or {}) for each in query_sets]
    no_draws = [np.empty((0, len(each.tokens)), np.int64) for each in all_rows]
    partners = [np.concatenate([none, *each.partners.values()]) for none, each in zip(no_draws, all_rows, strict=True)]
    shifts = [None if each.shift is None else _single(each.shift[:, order]) for each in query_sets]
    queries = np.unique(np.concatenate([each.tokens for each in all_rows]))
    scorers = Scorers(affinity, token_counts if options.controls else None, queries, order, runner.workers, query_ids)
    n_with_nulls = affinity.n_heads if options.controls else 0
    known, seed = token_counts is not None, options.seed % (1 << 63)
    pairs = (positives.indptr, columns, positives.weights, bounds, strata[order])

    def measure_block(block: int) -> Arrays:
        """`measures` (scorer × cell × row × measure) and `partners` (head × draw × row) of each query set."""
        some, found = scorers.queries_of(block), {}
        parts = [rows.between(some[0], some[-1]) for rows in all_rows]
        for number, (part, each) in enumerate(zip(parts, partners, strict=True)):
            n_rows = part.stop - part.start
            found[f"measures-{number}"] = np.empty((len(scorers), CELLS, n_rows, MEASURES))
            found[f"partners-{number}"] = np.empty((n_with_nulls, len(each), n_rows))
        for scorer in range(len(scorers)):
            scores, nulls = scorers.scores(scorer, block), scorer < n_with_nulls
            for number, (rows, part, shift) in enumerate(zip(all_rows, parts, shifts, strict=True)):
                tokens = rows.tokens[part]
                into = found[f"measures-{number}"][scorer]
                aurocs = found[f"partners-{number}"][scorer] if nulls else np.empty((0, len(tokens)))
                measure_rows(
                    scores,
                    np.searchsorted(some, tokens),
                    np.empty(0, np.float32) if shift is None or scorer >= len(shift) else shift[scorer],
                    tokens,
                    rows.others[part] if nulls else tokens[:0],
                    np.ascontiguousarray(partners[number][: len(aurocs), part]),
                    *pairs,
                    *(known, known and nulls, options.matched, seed, options.k),
                    into,
                    aurocs,
                )
        return found

    measured = [np.empty((len(scorers), CELLS, len(each.tokens), MEASURES)) for each in all_rows]
    aurocs = [np.empty((n_with_nulls, len(each), each.shape[1])) for each in partners]
    for block, found in enumerate(runner.run(measure_block, scorers.n_blocks)):
        some = scorers.queries_of(block)
        for number, rows in enumerate(all_rows):
            part = rows.between(some[0], some[-1])
            measured[number][:, :, part] = found[f"measures-{number}"]
            aurocs[number][:, :, part] = found[f"partners-{number}"]
    n_strata = len(bounds) - 1 if known else None
    scorers.close()
    return [
        _by_query(np.asarray(query_set.tokens, np.int64), rows, affinity, options, n_strata, *found)
        for query_set, rows, *found in zip(query_sets, all_rows, measured, aurocs, strict=True)
    ]


def _rows(
    query_set: QuerySet,
    positives: Positives,
    token_counts: Int64[np.ndarray, "token"] | None,
    options: RankingOptions,
    groups: Mapping[str, Int64[np.ndarray, "token"]],
) -> Rows:
    queries = np.asarray(query_set.tokens, np.int64)
    check_range("token id", queries, positives.vocab_size)
    tokens = np.unique(queries[positives.sizes[queries] > 0])
    others, partners = tokens[:0], {}
    if options.controls:
        if len(tokens) > 1:
            others = next_in_circle(tokens, np.random.default_rng(options.seed))
        for name, each in groups.items():
            random = np.random.default_rng([options.seed % (1 << 63), 1])
            partners[name] = tokens[derange_within(exchange_groups(each, token_counts)[tokens], DERANGEMENTS, random)]
    return Rows(tokens, others, partners)


def next_in_circle(members: Int[np.ndarray, "member"], random: np.random.Generator) -> Int[np.ndarray, "member"]:
    """For each member another one: its neighbour in a circle of random order."""
    places = random.permutation(len(members))
    following = np.empty_like(members)
    following[places] = members[np.roll(places, -1)]
    return following


def _by_query(
    queries: Int64[np.ndarray, "query"],
    rows: Rows,
    affinity: Affinity,
    options: RankingOptions,
    n_strata: int | None,
    measured: Float[np.ndarray, "scorer cell row measure"],
    partner_aurocs: Float[np.ndarray, "head draw row"],
) -> Measures:
    """Arrange measures by the query whose positives were ranked, and by control."""
    n_heads, vocab_size = affinity.n_heads, affinity.vocab_size

    def cell(
        number: int, tokens: Int64[np.ndarray, "row"], n_measures: int = MEASURES
    ) -> Float[np.ndarray, "scorer query measure"]:
        row_of = np.full(vocab_size, -1)
        row_of[tokens] = np.arange(len(tokens))
        ranked_in = row_of[queries]
        by_query = np.full((len(measured), len(queries), n_measures), np.nan)
        by_query[:, ranked_in >= 0] = measured[:, number, ranked_in[ranked_in >= 0], :n_measures]
        return by_query

    def against(first_cell: int) -> Measures:
        """The frequency baseline, if any, follows the heads."""
        own = cell(first_cell + OWN, rows.tokens)
        shuffled = cell(first_cell + OTHER_QUERY, rows.others, AUROC + 1)[:n_heads] if len(rows.others) else None
        is_chosen = (first_cell == MATCHED) == options.matched
        if len(measured) == n_heads:
            return Measures(queries, own, shuffled, None, None, within if is_chosen else {})
        if first_cell == MATCHED:  # permuted within strata, against keys of the same stratum: ½ is expected
            permuted = np.where(np.isnan(own[..., : AUROC + 1]), np.nan, 0.5)
        else:
            permuted = cell(EXCHANGED, rows.tokens, AUROC + 1)
        return Measures(queries, own[:n_heads], shuffled, permuted[:n_heads], own[n_heads], within if is_chosen else {})

    within, first_draw = {}, 0
    for name, partners in rows.partners.items():
        of_token = np.full((len(partner_aurocs), vocab_size), np.nan)
        of_token[:, rows.tokens] = 0.0
        for draw, tokens in enumerate(partners):
            of_token[:, tokens] += partner_aurocs[:, first_draw + draw] / len(partners)
        of_token[:, rows.tokens[partners[0] == rows.tokens]] = np.nan
        within[name] = of_token[:, queries]
        first_draw += len(partners)
    if n_strata is None:
        return against(OWN)
    matched = against(MATCHED)
    chosen = matched if options.matched else against(OWN)
    return Measures(**vars(chosen) | {"matched": matched, "n_strata": n_strata})


class HeadMeans(NamedTuple):
    seen: Interval
    all: Interval
    weighted: Interval


def head_means(
    auroc: Float[np.ndarray, "head query"], totals: Int[np.ndarray, "query"], resamples: int = 1000, seed: int = 0
) -> HeadMeans:
    """The three means over query tokens and their percentile intervals over resampled query tokens.

    All heads and means use the same resamples, so that differences between heads are paired.
    """
    is_defined = ~np.isnan(auroc)
    defined, values = is_defined.astype(np.float64), np.where(is_defined, auroc, 0.0)
    sums = (values, defined, values * totals, defined * totals)

    def means(times: Float[np.ndarray, "resample query"]) -> Float[np.ndarray, "mean resample head"]:
        total, n_defined, weighted_total, weight = (times @ each.T for each in sums)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.stack([total / n_defined, total / times.sum(axis=1, keepdims=True), weighted_total / weight])

    with one_core_each():  # small products: more threads would wait for each other
        drawn = [means(times) for times in resampled(auroc.shape[1], resamples, seed)]
    samples = np.concatenate([np.full((3, 0, len(auroc)), np.nan), *drawn], axis=1)
    whole = means(np.ones((1, auroc.shape[1])))[:, 0]
    return HeadMeans(*(interval(value, some, skip_undefined=True) for value, some in zip(whole, samples, strict=True)))


def mean_over_seen(values: Float[np.ndarray, "head query"]) -> Float[np.ndarray, "head"]:
    """The mean over query tokens with a defined value; NaN if there are none."""
    defined = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        return np.where(defined, values, 0.0).sum(axis=1) / defined.sum(axis=1)


Points = dict[str, np.ndarray]


def roc_curves(affinity: Affinity, positives: Positives, token: int) -> list[Points]:
    """The corners of each head's ROC curve, without points on a straight line.

    The token must have both positives and negatives.
    """
    keys, weights = positives.of(token)
    weight = np.zeros(positives.vocab_size, np.int64)
    weight[keys] = weights
    return [_curve(scores, weight) for scores in scores_of(affinity.single(), token)]


def _curve(scores: Float[np.ndarray, "token"], weight: Int64[np.ndarray, "token"]) -> Points:
    """Thresholds from above all scores down to the lowest, with both rates at each."""
    order = np.argsort(-scores, kind="stable")
    last_of_tie = np.append(np.diff(scores[order]) != 0, True)
    found = np.concatenate([[0], np.cumsum(weight[order])[last_of_tie]])
    wrong = np.concatenate([[0], np.cumsum(weight[order] == 0)[last_of_tie]])
    bends = np.diff(found)[:-1] * np.diff(wrong)[1:] != np.diff(found)[1:] * np.diff(wrong)[:-1]
    corner = np.concatenate([[True], bends, [True]])
    thresholds = np.concatenate([[np.nan], scores[order][last_of_tie]])
    return {
        "threshold": thresholds[corner],
        "false_positive_rate": wrong[corner] / wrong[-1],
        "true_positive_rate": found[corner] / found[-1],
    }


Samples = dict[str, Float[np.ndarray, "sample head"]]


def control_samples(measures: Measures, resamples: int = 1000, seed: int = 0) -> Samples:
    """Each head's mean over query tokens with positives, the means of its controls, and its margins above them.

    The first row has all query tokens, each other one a resample. `null` is the larger of the two plain nulls in each
    resample. The margin above a null within groups is a mean over the query tokens that have one.
    """
    n_heads, n_queries = measures.heads.shape[:2]
    named = {
        "auroc": measures.heads,
        "shuffled_queries": measures.shuffled_queries,
        "permuted_keys": measures.permuted_keys,
        "frequency": None if measures.frequency is None else measures.frequency[None],
    }
    aurocs = {name: values[..., AUROC] for name, values in named.items() if values is not None}
    for name, null in measures.within.items():
        aurocs[name] = null
        aurocs[f"above_{name}"] = np.where(np.isnan(null), np.nan, measures.heads[..., AUROC])  # less the null, below
    values = np.concatenate(list(aurocs.values()))
    defined = ~np.isnan(values)
    known, counted = np.where(defined, values, 0.0).T, defined.T.astype(np.float64)
    times = chain([np.ones((1, n_queries))], resampled(n_queries, resamples, seed))
    with np.errstate(invalid="ignore"), one_core_each():
        means = np.concatenate([(each @ known) / (each @ counted) for each in times])
    parts = np.split(means, np.cumsum([len(each) for each in aurocs.values()])[:-1], axis=1)
    samples = dict.fromkeys(named, np.full((len(means), n_heads), np.nan))
    samples |= {name: np.broadcast_to(part, (len(means), n_heads)) for name, part in zip(aurocs, parts, strict=True)}
    samples["null"] = np.fmax(samples["shuffled_queries"], samples["permuted_keys"])
    samples["above_null"] = samples["auroc"] - samples["null"]
    samples["above_frequency"] = samples["auroc"] - samples["frequency"]
    for name in measures.within:
        samples[f"above_{name}"] = samples[f"above_{name}"] - samples[name]
    return samples


def behind_best(margins: Sequence[Float[np.ndarray, "sample head"]]) -> Float[np.ndarray, "sample head"]:
    """How far each head's smallest margin is below that of the best head, for the same query tokens."""
    least = np.fmin.reduce(margins)
    return least[:, [int(np.nan_to_num(least[0], nan=-np.inf).argmax())]] - least
