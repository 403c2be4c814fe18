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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Float32, Int, Int64

from detoklens.errors import CountsError, RangeError
from detoklens.kernels import product
from detoklens.kernels.ranking import OTHER_QUERY, AUROC, CELLS, EXCHANGED, MATCHED, MEASURES, OWN, measure_rows
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
from detoklens.scores.softmax import check_range

FEWEST_PANELS, MOST_PANELS = 8, 20
BLOCK_BYTES = 1 << 25
"""Size of a block's scores: 120 query tokens of GPT-2's vocabulary take 24 MB."""


@dataclass(frozen=True)
class Scorer:
    """Scores as a product of thin factors: a head, or a baseline with one column."""

    query: Float[np.ndarray, "token d_head"]
    key: Float[np.ndarray, "token d_head"]
    own_key: int
    """Scorers with the same number share their keys."""


@dataclass(frozen=True)
class Columns:
    """The order of keys: column c holds key order[c], stratum s the columns from bounds[s] to bounds[s + 1]."""

    order: Int64[np.ndarray, "token"]
    bounds: Int64[np.ndarray, "stratum_and_end"]

    @classmethod
    def by_stratum(cls, strata: Int64[np.ndarray, "token"]) -> Columns:
        order = np.argsort(strata, kind="stable")
        return cls(order, np.concatenate([[0], np.cumsum(np.bincount(strata))]))

    def arrays(self) -> Arrays:
        """The arrays that the compiled loops read."""
        column_of = np.empty_like(self.order)
        column_of[self.order] = np.arange(len(self.order))
        strata = np.repeat(np.arange(len(self.bounds) - 1), np.diff(self.bounds))
        return {"columns": column_of, "bounds": self.bounds, "strata": strata}


@dataclass(frozen=True)
class Asked:
    """Query tokens, and what is added to the score of each head and key: see `Layer.less_mean_query`."""

    query_tokens: Sequence[int] | Int64[np.ndarray, "query"]
    shift: Float[np.ndarray, "head key"] | None = None


@dataclass(frozen=True)
class Trials:
    """Whose positives each row ranks: those of its own query token, of another one, and of partners, by null."""

    queries: Int64[np.ndarray, "query"]
    seen: Int64[np.ndarray, "seen"]
    another: Int64[np.ndarray, "seen"] | None
    partners: Mapping[str, Int64[np.ndarray, "draw seen"]]
    shift: Float32[np.ndarray, "head column"]

    @classmethod
    def of(
        cls,
        asked: Asked,
        positives: Positives,
        columns: Columns,
        token_counts: Int64[np.ndarray, "token"] | None,
        judging: Judging,
        groups: Mapping[str, Int64[np.ndarray, "token"]],
    ) -> Trials:
        queries = np.asarray(asked.query_tokens, np.int64)
        check_range("token id", queries, positives.vocab_size)
        seen = np.unique(queries[positives.sizes[queries] > 0])
        has_another = judging.controls and len(seen) > 1
        another = next_in_circle(seen, np.random.default_rng(judging.seed)) if has_another else None
        partners = {
            name: _partners(seen, exchange_groups(each, token_counts)[seen], judging.seed)
            for name, each in groups.items()
        }
        shift = np.empty((0, 0)) if asked.shift is None else asked.shift[:, columns.order]
        return cls(queries, seen, another, partners, shift.astype(np.float32))

    @cached_property
    def all_partners(self) -> Int64[np.ndarray, "draw seen"]:
        return np.concatenate([np.empty((0, len(self.seen)), np.int64), *self.partners.values()])

    def between(self, first: int, last: int) -> slice:
        """The rows of the query tokens from `first` to `last`."""
        begin, end = np.searchsorted(self.seen, [first, last + 1])
        return slice(int(begin), int(end))


@dataclass(frozen=True)
class Block:
    """A block of queries for all scorers, of which the first `n_with_nulls` are compared with nulls."""

    shared: Shared
    number: int
    n_scorers: int
    n_with_nulls: int
    matched: bool
    partners_matched: bool
    seed: int
    k: int


def panels_of_block(vocab_size: int) -> int:
    return int(np.clip(BLOCK_BYTES // (4 * vocab_size * product.QUERIES), FEWEST_PANELS, MOST_PANELS))


def rows_of_block(vocab_size: int) -> int:
    return panels_of_block(vocab_size) * product.QUERIES


def share(
    trials: Sequence[Trials], scorers: Iterable[Scorer], positives: Positives, columns: Columns, workers: int = 1
) -> Shared:
    """The arrays that blocks of these queries need; the scores of a query token serve all of its trials."""
    queries = np.unique(np.concatenate([each.seen for each in trials]))
    arrays = {"indptr": positives.indptr, "weights": positives.weights, "asked": queries, **columns.arrays()}
    arrays["columns"] = arrays["columns"].astype(np.int32)[positives.keys]

    made = list(scorers)
    own = {scorer.own_key: scorer.key for scorer in made}
    packed = thread_map(lambda each: product.query_panels(_single(each.query[queries])), made, workers)
    arrays |= {f"query-{number}": panels for number, panels in enumerate(packed)}
    packed = thread_map(lambda key: product.key_panels(_single(key[columns.order])), own.values(), workers)
    arrays |= {f"key-{number}": panels for number, panels in zip(own, packed, strict=True)}
    return Shared(arrays, trials, [scorer.own_key for scorer in made])


def _single(vectors: Float[np.ndarray, "row d_head"]) -> Float32[np.ndarray, "row d_head"]:
    return vectors.astype(np.float32, copy=False)


class Shared:
    """The arrays that all threads read, by name, and one score buffer per thread."""

    def __init__(self, arrays: Arrays, trials: Sequence[Trials], own_keys: Sequence[int]) -> None:
        self._arrays = arrays
        self.trials, self.own_keys = trials, own_keys
        self._of_thread = threading.local()

    def __getitem__(self, name: str) -> np.ndarray:
        return self._arrays[name]

    @property
    def buffer(self) -> Float32[np.ndarray, "score"]:
        """Allocated once per thread; a new buffer for every block would cost a tenth of the time."""
        if not hasattr(self._of_thread, "buffer"):
            size = rows_of_block(len(self["indptr"]) - 1) * self[f"key-{self.own_keys[0]}"][:, 0].size
            self._of_thread.buffer = np.empty(size, np.float32)
        buffer: np.ndarray = self._of_thread.buffer
        return buffer


def judge_block(block: Block) -> Arrays:
    """For each of the trials, `measures` (scorer × cell × query × measure) and `partners` (scorer × draw × query)."""
    shared = block.shared
    n_panels = panels_of_block(len(shared["indptr"]) - 1)
    panels = slice(block.number * n_panels, (block.number + 1) * n_panels)
    asked = shared["asked"][panels.start * product.QUERIES : panels.stop * product.QUERIES]
    given = [shared[name] for name in ("indptr", "columns", "weights", "bounds", "strata")]
    found: Arrays = {}
    for scorer in range(block.n_scorers):
        keys = shared[f"key-{shared.own_keys[scorer]}"]
        scores = product.multiply(shared[f"query-{scorer}"][panels], keys, shared.buffer)
        nulls = scorer < block.n_with_nulls
        how = (block.matched, nulls and block.matched, block.partners_matched, block.seed, block.k)
        for number, trials in enumerate(shared.trials):
            part = trials.between(asked[0], asked[-1])
            own, partners = trials.seen[part], np.ascontiguousarray(trials.all_partners[:, part])
            if f"measures-{number}" not in found:
                found[f"measures-{number}"] = np.empty((block.n_scorers, CELLS, len(own), MEASURES))
                found[f"partners-{number}"] = np.empty((block.n_with_nulls, len(partners), len(own)))
            others = own[:0] if trials.another is None else trials.another[part]
            null_rows = (others, partners) if nulls else (own[:0], partners[:0])
            shift = trials.shift[scorer] if scorer < len(trials.shift) else np.empty(0, np.float32)
            into = found[f"partners-{number}"][scorer] if nulls else np.empty((0, len(own)))
            rows = np.searchsorted(asked, own)
            measure_rows(scores, rows, shift, own, *null_rows, *given, *how, found[f"measures-{number}"][scorer], into)
    return found


@dataclass(frozen=True)
class Measured:
    """The measures of each query token, NaN where undefined; the last axis is that of `kernels.ranking`."""

    heads: Float[np.ndarray, "head query measure"]
    shuffled_queries: Float[np.ndarray, "head query measure"] | None
    permuted_keys: Float[np.ndarray, "head query measure"] | None
    frequency: Float[np.ndarray, "query measure"] | None
    within: Mapping[str, Float[np.ndarray, "head query"]]
    """The AUROC with queries exchanged within groups, by name of the null, a mean over draws; NaN for a token alone."""


@dataclass(frozen=True)
class Measures(Measured):
    """The measures against the chosen negatives and, if counts are known, against matched ones."""

    query_tokens: Int64[np.ndarray, "query"]
    matched: Measured | None
    n_strata: int | None


@dataclass(frozen=True)
class Judging:
    """How heads are measured.

    `matched` restricts negatives to the positive's frequency stratum, with `per_octave` strata per doubling of counts.
    `controls` adds the nulls and the frequency baseline, as far as token counts and groups are known.
    """

    k: int = 10
    matched: bool = False
    controls: bool = True
    seed: int = 0
    per_octave: int = 1


@dataclass(frozen=True)
class Found:
    """The measures of all rows of the trials, from which `measures` arranges those of each query token."""

    trials: Trials
    rows: Float[np.ndarray, "scorer cell seen measure"]
    by_partner: Float[np.ndarray, "head draw seen"]
    vocab_size: int
    n_heads: int
    matched: bool
    n_strata: int | None

    def measures(self) -> Measures:
        queries, seen, drawn = self.trials.queries, self.trials.seen, self.trials.partners
        about = _by_cell(queries, self.vocab_size, seen, self.trials.another, self.rows)
        by_null = np.split(self.by_partner, len(drawn), axis=1) if drawn else []
        within = {
            name: _mean_over_draws(queries, self.vocab_size, seen, asked, aurocs)
            for (name, asked), aurocs in zip(drawn.items(), by_null, strict=True)
        }
        return _measures(queries, about, self.n_heads, self.matched, self.n_strata, within)


def measure_heads(
    affinity: Affinity,
    positives: Positives,
    query_tokens: Sequence[int] | Int64[np.ndarray, "query"],
    token_counts: Int64[np.ndarray, "token"] | None = None,
    judging: Judging | None = None,
    runner: Runner | None = None,
    groups: Mapping[str, Int64[np.ndarray, "token"]] | None = None,
) -> Measures:
    """AUROC and precision of every head for these query tokens against these positives.

    `groups` name the nulls that exchange queries within a group of tokens, such as orthographic classes; where counts
    are known, each group is split into frequency bands. Blocks of query tokens run on the runner's threads.
    """
    asked = [Asked(query_tokens)]
    return measure_together(affinity, positives, asked, token_counts, judging, runner, groups)[0].measures()


def measure_together(
    affinity: Affinity,
    positives: Positives,
    asked: Sequence[Asked],
    token_counts: Int64[np.ndarray, "token"] | None = None,
    judging: Judging | None = None,
    runner: Runner | None = None,
    groups: Mapping[str, Int64[np.ndarray, "token"]] | None = None,
) -> list[Found]:
    """The same for several sets of query tokens, or shifted scores; each score is computed once."""
    judging, runner = judging or Judging(), runner or Runner()
    if affinity.vocab_size != positives.vocab_size:
        raise RangeError(
            f"the model has {affinity.vocab_size} tokens, the positives {positives.vocab_size}; "
            "use the same tokenizer for both"
        )
    columns = _columns(positives.vocab_size, token_counts, judging)
    grouped = groups if groups is not None and judging.controls else {}
    trials = [Trials.of(each, positives, columns, token_counts, judging, grouped) for each in asked]
    baseline = token_counts if judging.controls else None
    n_scorers = affinity.n_heads + (baseline is not None)
    n_with_nulls = affinity.n_heads if judging.controls else 0
    shared = share(trials, _scorers(affinity, baseline), positives, columns, runner.workers)
    rows = rows_of_block(positives.vocab_size)
    blocks = [shared["asked"][begin : begin + rows] for begin in range(0, len(shared["asked"]), rows)]
    matched = (token_counts is not None, judging.matched)
    same = (n_scorers, n_with_nulls, *matched, judging.seed % (1 << 63), judging.k)
    n_strata = None if token_counts is None else len(columns.bounds) - 1
    found = [
        Found(
            each,
            np.empty((n_scorers, CELLS, len(each.seen), MEASURES)),
            np.empty((n_with_nulls, len(each.all_partners), len(each.seen))),
            positives.vocab_size,
            affinity.n_heads,
            judging.matched,
            n_strata,
        )
        for each in trials
    ]
    results = runner.run(lambda number: judge_block(Block(shared, number, *same)), len(blocks))
    for queries, result in zip(blocks, results, strict=True):
        for number, each in enumerate(found):
            part = each.trials.between(queries[0], queries[-1])
            each.rows[:, :, part] = result[f"measures-{number}"]
            each.by_partner[:, :, part] = result[f"partners-{number}"]
    return found


def _partners(
    seen: Int64[np.ndarray, "seen"], groups: Int64[np.ndarray, "seen"], seed: int
) -> Int64[np.ndarray, "draw seen"]:
    """The token whose positives each row ranks, for each draw of a null within groups."""
    return seen[derange_within(groups, DERANGEMENTS, np.random.default_rng([seed % (1 << 63), 1]))]


def _mean_over_draws(
    queries: Int64[np.ndarray, "query"],
    vocab_size: int,
    seen: Int64[np.ndarray, "seen"],
    partners: Int64[np.ndarray, "draw seen"],
    aurocs: Float[np.ndarray, "head draw seen"],
) -> Float[np.ndarray, "head query"]:
    """Each query's AUROC by the rows of its partners; NaN if it has no partner."""
    about = np.full((len(aurocs), vocab_size), np.nan)
    about[:, seen] = 0.0
    for draw, asked in enumerate(partners):
        about[:, asked] += aurocs[:, draw] / len(partners)
    about[:, seen[partners[0] == seen]] = np.nan
    return about[:, queries]


def _scorers(affinity: Affinity, token_counts: Int64[np.ndarray, "token"] | None) -> Iterator[Scorer]:
    """The heads, then the frequency baseline, which prefers frequent keys for every query."""
    for head, (query, key) in enumerate(affinity.heads()):
        yield Scorer(query, key, head if affinity.own_keys is None else affinity.own_keys[head])
    if token_counts is not None:
        yield Scorer(np.ones((len(token_counts), 1), np.float32), frequency_ranks(token_counts)[:, None], -1)


def _columns(vocab_size: int, token_counts: Int64[np.ndarray, "token"] | None, judging: Judging) -> Columns:
    """Keys by stratum, or all in one stratum without counts."""
    if token_counts is not None:
        return Columns.by_stratum(frequency_strata(token_counts, judging.per_octave))
    if judging.matched:
        raise CountsError("frequency-matched negatives need token counts; pass counts")
    return Columns(np.arange(vocab_size), np.array([0, vocab_size]))


ByCell = dict[int, Float[np.ndarray, "scorer query measure"]]


def _by_cell(
    queries: Int64[np.ndarray, "query"],
    vocab_size: int,
    seen: Int64[np.ndarray, "seen"],
    another: Int64[np.ndarray, "seen"] | None,
    found: Float[np.ndarray, "scorer cell seen measure"],
) -> ByCell:
    """The measures of each cell, placed at the token whose positives were ranked."""
    asked = dict.fromkeys((OWN, EXCHANGED, MATCHED + OWN), seen)
    if another is not None:
        asked |= dict.fromkeys((OTHER_QUERY, MATCHED + OTHER_QUERY), another)
    return {cell: _about(queries, found[:, cell], of_row, vocab_size) for cell, of_row in asked.items()}


def _about(
    queries: Int64[np.ndarray, "query"],
    found: Float[np.ndarray, "scorer seen measure"],
    asked: Int64[np.ndarray, "seen"],
    vocab_size: int,
) -> Float[np.ndarray, "scorer query measure"]:
    """The measures of each query's positives; NaN without any."""
    row_of = np.full(vocab_size, -1)
    row_of[asked] = np.arange(len(asked))
    rows = row_of[queries]
    about = np.full((len(found), len(queries), MEASURES), np.nan)
    about[:, rows >= 0] = found[:, rows[rows >= 0]]
    return about


def _measures(
    queries: Int64[np.ndarray, "query"],
    about: ByCell,
    n_heads: int,
    matched: bool,
    n_strata: int | None,
    within: Mapping[str, Float[np.ndarray, "head query"]],
) -> Measures:
    """Arrange the cells by head and control."""
    against_all = _measured(about, 0, n_heads, {} if matched else within)
    if n_strata is None:
        return Measures(
            **vars(against_all) | {"permuted_keys": None}, query_tokens=queries, matched=None, n_strata=None
        )
    against_equals = _measured(about, MATCHED, n_heads, within if matched else {})
    first = against_equals if matched else against_all
    return Measures(**vars(first), query_tokens=queries, matched=against_equals, n_strata=n_strata)


def _measured(
    about: ByCell, first_cell: int, n_heads: int, within: Mapping[str, Float[np.ndarray, "head query"]]
) -> Measured:
    """The cells of one kind of negatives; the frequency baseline, if any, follows the heads."""
    own, shuffled = about[first_cell + OWN], about.get(first_cell + OTHER_QUERY)
    controls = len(own) > n_heads
    exchanged = about[EXCHANGED] if first_cell == 0 else _half_where_defined(own)
    return Measured(
        heads=own[:n_heads],
        shuffled_queries=None if shuffled is None else shuffled[:n_heads],
        permuted_keys=exchanged[:n_heads] if controls else None,
        frequency=own[n_heads] if controls else None,
        within=within,
    )


def _half_where_defined(own: Float[np.ndarray, "scorer query measure"]) -> Float[np.ndarray, "scorer query measure"]:
    """With keys permuted within strata and negatives from the same stratum, the expected AUROC is always ½."""
    expected = np.full_like(own, np.nan)
    expected[..., AUROC] = np.where(np.isnan(own[..., AUROC]), np.nan, 0.5)
    return expected


def next_in_circle(members: Int[np.ndarray, "member"], random: np.random.Generator) -> Int[np.ndarray, "member"]:
    """For each member another one: its neighbour in a circle of random order."""
    places = random.permutation(len(members))
    following = np.empty_like(members)
    following[places] = members[np.roll(places, -1)]
    return following


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
    return HeadMeans(
        *(interval(value[0], some, skip_undefined=True) for value, some in zip(values, samples, strict=True))
    )


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


Sampled = dict[str, Float[np.ndarray, "sample head"]]


def control_samples(measured: Measured, resamples: int = 1000, seed: int = 0) -> Sampled:
    """Each head's mean over query tokens with positives, the means of its controls, and its margins above them.

    The first row has all query tokens, each other one a resample. `null` is the larger of the two plain nulls in each
    resample. The margin above a null within groups is a mean over the query tokens that have one.
    """
    found = _sampled(measured, resamples, seed)
    found["null"] = np.fmax(found["shuffled_queries"], found["permuted_keys"])
    found["above_null"] = found["auroc"] - found["null"]
    for name in measured.within:
        found[f"above_{name}"] = found.pop(f"auroc_{name}") - found[name]
    found["above_frequency"] = found["auroc"] - found["frequency"]
    return found


def behind_best(margins: Sequence[Float[np.ndarray, "sample head"]]) -> Float[np.ndarray, "sample head"]:
    """How far each head's smallest margin is below that of the best head, for the same query tokens."""
    least = np.fmin.reduce(margins)
    return least[:, [int(np.nan_to_num(least[0], nan=-np.inf).argmax())]] - least


def _sampled(measured: Measured, resamples: int, seed: int) -> Sampled:
    """Means over all query tokens in the first row, over resamples in the others."""
    n_heads, n_queries = measured.heads.shape[:2]
    given = {
        "auroc": measured.heads,
        "shuffled_queries": measured.shuffled_queries,
        "permuted_keys": measured.permuted_keys,
        "frequency": None if measured.frequency is None else measured.frequency[None],
    }
    known = {name: values[..., AUROC] for name, values in given.items() if values is not None}
    for name, null in measured.within.items():
        known[name], known[f"auroc_{name}"] = null, np.where(np.isnan(null), np.nan, measured.heads[..., AUROC])
    together = np.concatenate(list(known.values()))
    defined = ~np.isnan(together)
    known_values, counted = np.where(defined, together, 0.0).T, defined.T.astype(np.float64)
    every_time = [np.ones((1, n_queries)), *resampled(n_queries, resamples, seed)]
    with np.errstate(invalid="ignore"), one_core_each():
        means = np.concatenate([(times @ known_values) / (times @ counted) for times in every_time])
    parts = np.split(means, np.cumsum([len(values) for values in known.values()])[:-1], axis=1)
    unknown = np.full((len(means), n_heads), np.nan)
    return dict.fromkeys(given, unknown) | {
        name: np.broadcast_to(part, unknown.shape) for name, part in zip(known, parts, strict=True)
    }
