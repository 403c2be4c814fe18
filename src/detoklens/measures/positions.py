"""Position terms Tᵖ and Tᵖᵖ, their sum, and its softmax: attention by position alone.

    Tᵖ[h, j] = q_b · K_p[j] / σ_j          Tᵖᵖ[h, i, j] = Q_p[i] · K_p[j] / (σ_i σ_j)

σ depends on the token, so every number summarizes the vocabulary: the value at the mean σ, the band of most tokens, and
the values at the largest and smallest σ. Tᵖ depends on the key's token only, and its band is exact. Tᵖᵖ and the sum
depend on two tokens. Their band is the range of values while both σ stay within bounds that hold for at least the given
share of all pairs of tokens. It may be too wide but never too narrow.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from detoklens.errors import RangeError
from detoklens.progress import Watcher, unwatched
from detoklens.scores.factors import Mean, project
from detoklens.scores.layer import Layer
from detoklens.scores.softmax import seen_keys, softcapped, softmax
from detoklens.weights.first_layer import FirstLayer
from detoklens.weights.scale import ScaleTable

PerPosition = Float[np.ndarray, "position"]
HeadKey = Float[np.ndarray, "head key"]
QUERY_BLOCK = 64


@dataclass(frozen=True)
class KeyScores:
    """What position alone adds to scores, in a text of `n_keys` tokens; the length matters to bidirectional models."""

    layer: FirstLayer
    n_keys: int

    def seen(self, query_position: int) -> slice:
        """The keys visible to a query."""
        return seen_keys(query_position, self.n_keys, self.layer.is_causal, self.layer.window)

    def along(self, query_position: int) -> HeadKey:
        """Tᵖ + Tᵖᵖ of the keys visible to a query."""
        raise NotImplementedError

    def softmax(self, scores: HeadKey) -> HeadKey:
        """Attention from scores before scaling."""
        return softmax(softcapped(scores * self.layer.attention_scale, self.layer.softcap))

    def attention(self, query_position: int) -> HeadKey:
        """Attention by position alone on the keys visible to a query."""
        return self.softmax(self.along(query_position))


@dataclass(frozen=True)
class PositionScores(KeyScores):
    """Learned positions: Tᵖ and Tᵖᵖ before the division by σ, and 1/σ averaged over the vocabulary."""

    inverse: PerPosition
    query: Float[np.ndarray, "head position d_head"]
    key: Float[np.ndarray, "head position d_head"]
    query_bias: Float[np.ndarray, "head d_head"]

    @classmethod
    def of(cls, layer: Layer, inverse: PerPosition, n_keys: int | None = None) -> PositionScores:
        positions, folded = layer.weights.position_embeddings.astype(np.float64), layer.folded
        return cls(
            layer.weights,
            len(positions) if n_keys is None else n_keys,
            inverse,
            query=project(positions, folded.query_weight.astype(np.float64)),
            key=project(positions, folded.key_weight.astype(np.float64)),
            query_bias=folded.query_bias.astype(np.float64),
        )

    @cached_property
    def self_assertion(self) -> HeadKey:
        """Tᵖ × σ_j at every key position."""
        return np.einsum("hk,hjk->hj", self.query_bias, self.key)

    def comparison(self, query_position: int, keys: slice | None = None) -> HeadKey:
        """Tᵖᵖ × σ_i σ_j for the keys visible to a query, or for the given keys."""
        keys = self.seen(query_position) if keys is None else keys
        return np.einsum("hk,hjk->hj", self.query[:, query_position], self.key[:, keys])

    def along(self, query_position: int) -> HeadKey:
        seen = self.seen(query_position)
        comparison = self.comparison(query_position) * float(self.inverse[query_position])
        return (self.self_assertion[:, seen] + comparison) * self.inverse[seen]

    def undivided_rows(self, queries: Sequence[int]) -> Iterator[tuple[int, HeadKey]]:
        """(Tᵖ + Tᵖᵖ) × σ_j over the visible keys of many queries, in blocks of queries."""
        for begin in range(0, len(queries), QUERY_BLOCK):
            block = list(queries[begin : begin + QUERY_BLOCK])
            compared = (self.query[:, block] * self.inverse[block][:, None]) @ self.key.transpose(0, 2, 1)
            for place, query in enumerate(block):
                seen = self.seen(query)
                yield query, self.self_assertion[:, seen] + compared[:, place, seen]


@dataclass(frozen=True)
class OffsetScores(KeyScores):
    """Rotary and ALiBi positions: the kernel at offsets 1 − n_keys to n_keys − 1, from 0 in causal models."""

    kernel: Float[np.ndarray, "head offset"]
    first_offset: int

    @classmethod
    def of(cls, layer: Layer, n_keys: int, mean: Mean = "vocabulary") -> OffsetScores:
        first = 0 if layer.is_causal else 1 - n_keys
        return cls(layer.weights, n_keys, layer.kernel(range(first, n_keys), mean).astype(np.float64), first)

    def along(self, query_position: int) -> HeadKey:
        seen = self.seen(query_position)
        return self.kernel[:, query_position - np.arange(seen.start, seen.stop) - self.first_offset]


Average = Literal["ratio-of-mean", "mean-of-ratio"]


class ScaleSummary(NamedTuple):
    """σ at each position over the vocabulary.

    `low` to `high` contains at least `coverage` of the tokens. `pair_low` to `pair_high` is wider: it contains the
    square root of that share, so both tokens lie inside for at least `coverage` of all independent pairs.
    """

    mean: PerPosition
    mean_inverse: PerPosition
    smallest: PerPosition
    pair_low: PerPosition
    low: PerPosition
    high: PerPosition
    pair_high: PerPosition
    largest: PerPosition

    def inverse(self, average: Average) -> PerPosition:
        """The factor of a score: 1 / mean σ ("ratio-of-mean"), or the mean of 1/σ ("mean-of-ratio")."""
        return 1 / self.mean if average == "ratio-of-mean" else self.mean_inverse


def summarise_scales(
    scales: ScaleTable,
    token_weights: Float[np.ndarray, "token"] | None = None,
    coverage: float = 0.95,
    watch: Watcher = unwatched,
) -> ScaleSummary:
    """σ at every position over the vocabulary, evenly or by weight; tokens of weight 0 are left out."""
    if not 0 < coverage < 1:
        raise RangeError(f"the band must be a share of the vocabulary between 0 and 1, such as 0.95, not {coverage}")
    shares = None if token_weights is None else _shares(token_weights, len(scales.token_variance))
    pairs = math.sqrt(coverage)
    levels = np.array([(1 - pairs) / 2, (1 - coverage) / 2, (1 + coverage) / 2, (1 + pairs) / 2])
    parts: list[ScaleSummary] = []
    for positions, block in scales.position_blocks():
        parts.append(_evenly(block, levels) if shares is None else _by_weight(block, shares, levels))
        watch(positions.stop, len(scales.position_variance))
    return ScaleSummary(*map(np.concatenate, zip(*parts, strict=True)))


def _shares(weights: Float[np.ndarray, "token"], vocab_size: int) -> Float[np.ndarray, "token"]:
    if weights.shape != (vocab_size,):
        raise RangeError(f"got {len(weights)} token weights for {vocab_size} tokens; pass one per token")
    total = float(weights.sum(dtype=np.float64))
    if not (np.isfinite(total) and total > 0 and float(weights.min()) >= 0):
        raise RangeError("token weights must be finite, at least 0 and not all 0; pass counts or frequencies")
    return weights.astype(np.float64) / total


def _evenly(block: Float[np.ndarray, "position token"], levels: Float[np.ndarray, "level"]) -> ScaleSummary:
    n_tokens = block.shape[1]
    mean = block.mean(axis=1, dtype=np.float64)
    mean_inverse = (1 / block).mean(axis=1, dtype=np.float64)
    # Rounding: 0.95 × 100 must give rank 95 despite binary fractions.
    ranks = [max(0, math.ceil(round(level * n_tokens, 9)) - 1) for level in levels]
    block.sort(axis=1)  # in float32, three times as fast as a partition at six ranks
    chosen = block[:, [0, *ranks, n_tokens - 1]].astype(np.float64)
    return ScaleSummary(mean, mean_inverse, *chosen.T)


def _by_weight(
    block: Float[np.ndarray, "position token"],
    shares: Float[np.ndarray, "token"],
    levels: Float[np.ndarray, "level"],
) -> ScaleSummary:
    """Row by row: a row fits into the cache, a block does not."""
    seen = np.flatnonzero(shares)
    rows = []
    for scales in block[:, seen]:
        order = np.argsort(scales)
        reached = np.cumsum(shares[seen][order])
        ranks = np.searchsorted(reached, levels * reached[-1] - 1e-12)  # guards against binary fractions, as above
        means = [np.average(values, weights=shares[seen]) for values in (scales, 1 / scales)]
        rows.append([*means, *scales[order[[0, *ranks, -1]]]])
    return ScaleSummary(*np.array(rows, np.float64).T)


BEYOND_CHANCE = 5.0  # standard deviations
EVEN_TIMES = 1.5
INITIAL_TIMES = 1.25
FEWEST_ROWS = 16
MOST = 0.5
RANGE_NAMES = ("initializer_range", "init_std")  # GPT-2's and Whisper's config keys


class TrainedRange(NamedTuple):
    """The number of trained rows, from the first, and how they differ from the rest; NaN without a rest."""

    positions: int
    trained: int
    trained_variance: float
    untrained_variance: float
    initial_variance: float
    trained_correlation: float
    untrained_correlation: float

    @property
    def is_whole(self) -> bool:
        return self.trained == self.positions


def trained_range(layer: Layer) -> TrainedRange:
    """The trained positions of a layer, judged by its position table and the initial deviation in its config."""
    config = layer.checkpoint.config
    found = next((config[name] for name in RANGE_NAMES if config.get(name) is not None), None)
    known = isinstance(found, int | float) and not isinstance(found, bool) and 0 < found < math.inf
    return range_of_table(layer.weights.position_embeddings, float(found) if known else None)  # type: ignore[arg-type]


def range_of_table(
    table: Float[np.ndarray, "position d_model"], initial_deviation: float | None = None
) -> TrainedRange:
    """The same for plain rows and their initial standard deviation, if known."""

    def median(values: PerPosition) -> float:
        return float(np.median(values)) if len(values) else math.nan

    variances, alike = table.var(axis=1, dtype=np.float64), neighbour_correlations(table)
    initial = math.nan if initial_deviation is None else initial_deviation**2
    trained = _first_untrained(variances, alike, table.shape[1], initial)
    return TrainedRange(
        positions=len(table),
        trained=trained,
        trained_variance=median(variances[:trained]),
        untrained_variance=median(variances[trained:]),
        initial_variance=initial,
        trained_correlation=median(alike[1:trained]),
        untrained_correlation=median(alike[trained + 1 :]),
    )


def neighbour_correlations(table: Float[np.ndarray, "position d_model"]) -> PerPosition:
    """Each row's correlation with the previous one; 0 for the first row and for constant rows."""
    rows = table.astype(np.float64)
    rows -= rows.mean(axis=1, keepdims=True)
    sizes = np.linalg.norm(rows, axis=1)
    products, norms = np.einsum("pd,pd->p", rows[1:], rows[:-1]), sizes[1:] * sizes[:-1]
    return np.concatenate([[0.0], np.divide(products, norms, out=np.zeros_like(norms), where=norms > 0)])


def _first_untrained(variances: PerPosition, alike: PerPosition, features: int, initial: float) -> int:
    """The first untrained row, or the number of rows if all are trained.

    Untrained rows follow the last row that resembles its neighbour, after any rows of an odd variance; their variances
    spread as those of independent draws do, at most as wide as the initial ones.
    """
    total, spread = len(alike), math.sqrt(2 / features)
    beyond = alike > BEYOND_CHANCE / math.sqrt(features)
    after = int(np.flatnonzero(beyond).max(initial=-1)) + 1
    if after == 0 or total - after < FEWEST_ROWS:
        return total
    logs = np.log(np.maximum(variances, np.finfo(np.float64).tiny))
    is_usual = np.abs(logs[after:] - np.median(logs[after:])) <= BEYOND_CHANCE * spread
    first = after + int(np.argmax(is_usual)) if is_usual.any() else total
    if min(first, total - first) < FEWEST_ROWS or float(beyond[1:first].mean()) <= MOST:
        return total
    times = max(EVEN_TIMES, 1 + BEYOND_CHANCE / math.sqrt(2 * (total - first - 1)))
    is_drawn = float(logs[first:].std(ddof=1)) <= times * spread
    is_initial = not np.median(variances[first:]) > INITIAL_TIMES * initial  # NaN if unknown: always passes
    return first if is_drawn and is_initial else total


# The paper uses query positions 50, 500 and 1000 of GPT-2's 1024; other lengths use the same fractions.
PAPER_QUERIES, PAPER_LENGTH = (50, 500, 1000), 1024


def trained_length(layer: Layer) -> int:
    """The number of trained positions; for rotary and ALiBi models at most the paper's 1,024."""
    return trained_range(layer).trained if layer.positions == "learned" else min(layer.n_positions, PAPER_LENGTH)


def chosen_queries(layer: Layer, query_positions: Sequence[int] | None, length: int | None = None) -> list[int]:
    """The given query positions, sorted; by default about 5 %, 50 % and 98 % of the length.

    The length is the number of trained positions, or the given one if that is less.
    """
    if query_positions is None:
        trained = trained_length(layer)
        within = trained if length is None else min(trained, length)
        return sorted({within * position // PAPER_LENGTH for position in PAPER_QUERIES})
    if not query_positions:
        raise RangeError("no query position was given; pass at least one, e.g. 50,500")
    layer.check(positions=query_positions)
    return sorted(set(query_positions))


@dataclass(frozen=True)
class Curve:
    """One quantity along the keys for every head: p, pp, p+pp or attention (all but p from a query position)."""

    quantity: str
    query_position: int | None
    layer_norm: bool
    mean: HeadKey
    low: HeadKey
    high: HeadKey
    at_smallest_scale: HeadKey
    at_largest_scale: HeadKey
    first_key: int = field(default=0, kw_only=True)


Extremes = Literal["key", "query", "both"]


def position_curves(
    layer: Layer,
    query_positions: Sequence[int],
    average: Average = "ratio-of-mean",
    token_weights: Float[np.ndarray, "token"] | None = None,
    coverage: float = 0.95,
    watch: Watcher = unwatched,
    n_keys: int | None = None,
    extremes: Extremes = "key",
) -> list[Curve]:
    """Position terms and attention by position alone, with their spread over the vocabulary.

    `average` is the mean to use: score / mean σ, or mean of score / σ. `token_weights` weights the vocabulary, e.g. by
    corpus counts. `coverage` is the share of the vocabulary within the band. `n_keys` is the text length of a
    bidirectional model. `extremes` says whose σ is the smallest or largest: the key's, as in the caption of the paper's
    Figure 3, the query's, as in its code, or both. The other σ is the mean. Tᵖ only has the key's.
    """
    summary = summarise_scales(layer.scales, token_weights, coverage, watch)
    inverse = summary.inverse(average)
    scores = PositionScores.of(layer, inverse, n_keys)
    low, high = 1 / summary.pair_high, 1 / summary.pair_low
    ends = [
        (inverse if extremes == "key" else end, inverse if extremes == "query" else end)
        for end in (1 / summary.smallest, 1 / summary.largest)
    ]

    def pair_curve(quantity: str, query: int, asserted: HeadKey | float, compared: HeadKey) -> Curve:
        """Mean, band and extremes of a quantity that is monotone in the query's σ and in the key's."""
        seen = scores.seen(query)

        def divided(of_query: PerPosition, of_key: PerPosition) -> HeadKey:
            return (asserted + compared * float(of_query[query])) * of_key[seen]

        corners = np.array([divided(one, other) for one in (low, high) for other in (low, high)])
        values = [divided(inverse, inverse), corners.min(axis=0), corners.max(axis=0), *(divided(*end) for end in ends)]
        return Curve(quantity, query, True, *values, first_key=seen.start)

    asserted = scores.self_assertion
    one, other = asserted / summary.low, asserted / summary.high
    sides = [np.minimum(one, other), np.maximum(one, other), asserted / summary.smallest, asserted / summary.largest]
    # Without the division by σ nothing depends on the token: band and extremes are the value.
    found = [Curve("p", None, False, *[asserted] * 5), Curve("p", None, True, asserted * inverse, *sides)]
    for query in query_positions:
        compared, seen = scores.comparison(query), scores.seen(query)
        whole = pair_curve("p+pp", query, asserted[:, seen], compared)
        # A band is not one row of scores and has no softmax.
        attention = [scores.softmax(row) for row in (whole.mean, whole.at_smallest_scale, whole.at_largest_scale)]
        none = np.full_like(attention[0], np.nan)
        found += [
            Curve("pp", query, False, *[compared] * 5, first_key=seen.start),
            pair_curve("pp", query, 0.0, compared),
            whole,
            Curve("attention", query, True, attention[0], none, none, *attention[1:], first_key=seen.start),
        ]
    return found


def predicted_attention(
    layer: Layer, query_positions: Sequence[int], *, n_keys: int | None = None, mean: Mean = "vocabulary"
) -> list[HeadKey]:
    """Attention by position alone: softmax of Tᵖ + Tᵖᵖ, as [head, key ≤ query] for each query.

    Bidirectional models also have keys after the query, in a text of `n_keys`. With rotary or ALiBi positions it is the
    softmax of the kernel Tᵖ, which depends on `mean`.
    """
    layer.check(positions=query_positions)
    longest = layer.n_positions if n_keys is None else n_keys
    scores: KeyScores
    if layer.positions == "learned":
        scores = PositionScores.of(layer, summarise_scales(layer.scales).inverse("ratio-of-mean"), longest)
    else:
        scores = OffsetScores.of(layer, max(query_positions) + 1 if layer.is_causal else longest, mean)
    rows = []
    for query in query_positions:
        seen, end = scores.seen(query), query + 1 if layer.is_causal else longest
        rows.append(np.pad(scores.attention(query), ((0, 0), (seen.start, end - seen.stop))))  # none outside a window
    return rows
