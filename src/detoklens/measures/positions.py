"""Position terms Tᵖ and Tᵖᵖ, their sum, and its softmax: attention by position alone.

    Tᵖ[h, j] = q_b · K_p[j] / σ_j          Tᵖᵖ[h, i, j] = Q_p[i] · K_p[j] / (σ_i σ_j)

σ depends on the token, so every number summarizes the vocabulary: the value at the mean σ, the band of most tokens, and
the values at the largest and smallest σ. Tᵖ depends on the key's token only, and its band is exact. Tᵖᵖ and the sum
depend on two tokens; their band is the range of values while both σ stay within bounds that hold for at least the given
share of all pairs of tokens, so it may be too wide but never too narrow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float

from detoklens.errors import RangeError
from detoklens.progress import Watcher
from detoklens.scores.factors import Mean, project
from detoklens.scores.layer import Layer
from detoklens.scores.softmax import seen_keys, softcapped, softmax
from detoklens.weights.first_layer import FirstLayer
from detoklens.weights.scale import ScaleTable


@dataclass(frozen=True)
class PositionScores:
    """Tᵖ and Tᵖᵖ of a layer before the division by σ."""

    query: Float[np.ndarray, "head position d_head"]
    key: Float[np.ndarray, "head position d_head"]
    query_bias: Float[np.ndarray, "head d_head"]
    layer: FirstLayer
    n_keys: int
    """Text length; it only matters for bidirectional models."""

    @classmethod
    def of(cls, layer: Layer, n_keys: int | None = None) -> PositionScores:
        positions, folded = layer.weights.position_embeddings.astype(np.float64), layer.folded
        return cls(
            query=project(positions, folded.query_weight.astype(np.float64)),
            key=project(positions, folded.key_weight.astype(np.float64)),
            query_bias=folded.query_bias.astype(np.float64),
            layer=layer.weights,
            n_keys=len(positions) if n_keys is None else n_keys,
        )

    def seen(self, query_position: int) -> slice:
        """The keys visible to a query."""
        return seen_keys(query_position, self.n_keys, self.layer.is_causal, self.layer.window)

    def self_assertion(self) -> Float[np.ndarray, "head key"]:
        """Tᵖ × σ_j at every key position."""
        return np.einsum("hk,hjk->hj", self.query_bias, self.key)

    def comparison(self, query_position: int) -> Float[np.ndarray, "head key"]:
        """Tᵖᵖ × σ_i σ_j for the keys visible to a query."""
        return self.compared(query_position, self.seen(query_position))

    def compared(self, query_position: int, keys: slice) -> Float[np.ndarray, "head key"]:
        """Tᵖᵖ × σ_i σ_j for the given keys, visible or not."""
        return np.einsum("hk,hjk->hj", self.query[:, query_position], self.key[:, keys])

    def attention(self, query_position: int, inverse: Float[np.ndarray, "position"]) -> Float[np.ndarray, "head key"]:
        """softmax of (Tᵖ + Tᵖᵖ) × attention scale over the visible keys; `inverse` is 1/σ."""
        seen = self.seen(query_position)
        comparison = self.comparison(query_position) * float(inverse[query_position])
        return self.softmax((self.self_assertion()[:, seen] + comparison) * inverse[seen])

    def softmax(self, scores: Float[np.ndarray, "head key"]) -> Float[np.ndarray, "head key"]:
        """Attention from scores before scaling."""
        return softmax(softcapped(scores * self.layer.attention_scale, self.layer.softcap))


@dataclass(frozen=True)
class OffsetScores:
    """The kernel at offsets 1 − n_keys to n_keys − 1, from 0 in causal models."""

    kernel: Float[np.ndarray, "head offset"]
    first_offset: int
    n_keys: int
    layer: FirstLayer

    @classmethod
    def of(cls, layer: Layer, n_keys: int, mean: Mean = "vocabulary") -> OffsetScores:
        first = 0 if layer.is_causal else 1 - n_keys
        kernel = layer.kernel(range(first, n_keys), mean).astype(np.float64)
        return cls(kernel, first, n_keys, layer.weights)

    def seen(self, query_position: int) -> slice:
        """The keys visible to a query."""
        return seen_keys(query_position, self.n_keys, self.layer.is_causal, self.layer.window)

    def along(self, query_position: int) -> Float[np.ndarray, "head key"]:
        """Tᵖ of the keys visible to a query."""
        seen = self.seen(query_position)
        return self.kernel[:, query_position - np.arange(seen.start, seen.stop) - self.first_offset]

    def attention(self, query_position: int) -> Float[np.ndarray, "head key"]:
        """softmax of the kernel over the visible keys."""
        return softmax(softcapped(self.along(query_position) * self.layer.attention_scale, self.layer.softcap))


Average = Literal["ratio-of-mean", "mean-of-ratio"]


@dataclass(frozen=True)
class ScaleSummary:
    """σ at each position over the vocabulary.

    `low` to `high` contains at least `coverage` of the tokens. `pair_low` to `pair_high` is wider: it contains the
    square root of that share, so both tokens lie inside for at least `coverage` of all independent pairs.
    """

    mean: Float[np.ndarray, "position"]
    mean_inverse: Float[np.ndarray, "position"]
    smallest: Float[np.ndarray, "position"]
    pair_low: Float[np.ndarray, "position"]
    low: Float[np.ndarray, "position"]
    high: Float[np.ndarray, "position"]
    pair_high: Float[np.ndarray, "position"]
    largest: Float[np.ndarray, "position"]

    def inverse(self, average: Average) -> Float[np.ndarray, "position"]:
        """The factor of a score: 1 / mean σ ("ratio-of-mean"), or the mean of 1/σ ("mean-of-ratio")."""
        return 1 / self.mean if average == "ratio-of-mean" else self.mean_inverse


def summarise_scales(
    scales: ScaleTable,
    token_weights: Float[np.ndarray, "token"] | None = None,
    coverage: float = 0.95,
    watch: Watcher | None = None,
) -> ScaleSummary:
    """σ at every position over the vocabulary, evenly or by weight; tokens of weight 0 are left out."""
    if not 0 < coverage < 1:
        raise RangeError(f"the band must be a share of the vocabulary between 0 and 1, such as 0.95, not {coverage}")
    shares = None if token_weights is None else _shares(token_weights, len(scales.token_variance))
    summarise = _evenly if shares is None else _by_weight(shares)
    levels, total = _levels(coverage), len(scales.position_variance)
    parts: list[ScaleSummary] = []
    for positions, block in scales.position_blocks():
        parts.append(summarise(block, levels))
        if watch is not None:
            watch(positions.stop, total)
    return ScaleSummary(
        *(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(ScaleSummary))
    )


def _levels(coverage: float) -> tuple[float, ...]:
    pair_coverage = math.sqrt(coverage)
    return tuple(
        (1 + side * share) / 2
        for side, share in ((-1, pair_coverage), (-1, coverage), (1, coverage), (1, pair_coverage))
    )


def _shares(weights: Float[np.ndarray, "token"], vocab_size: int) -> Float[np.ndarray, "token"]:
    if weights.shape != (vocab_size,):
        raise RangeError(f"got {len(weights)} token weights for {vocab_size} tokens; pass one per token")
    total = float(weights.sum(dtype=np.float64))
    if not (np.isfinite(total) and total > 0 and float(weights.min()) >= 0):
        raise RangeError("token weights must be finite, at least 0 and not all 0; pass counts or frequencies")
    return weights.astype(np.float64) / total


def _evenly(block: Float[np.ndarray, "position token"], levels: tuple[float, ...]) -> ScaleSummary:
    n_tokens = block.shape[1]
    mean = block.mean(axis=1, dtype=np.float64)
    mean_inverse = (1 / block).mean(axis=1, dtype=np.float64)
    # Rounding: 0.95 × 100 must give rank 95 despite binary fractions.
    ranks = [max(0, math.ceil(round(level * n_tokens, 9)) - 1) for level in levels]
    block.sort(axis=1)  # in float32, three times as fast as a partition at six ranks
    chosen = block[:, [0, *ranks, n_tokens - 1]].astype(np.float64)
    return ScaleSummary(mean, mean_inverse, *chosen.T)


def _by_weight(
    shares: Float[np.ndarray, "token"],
) -> Callable[[Float[np.ndarray, "position token"], tuple[float, ...]], ScaleSummary]:
    seen = np.flatnonzero(shares)
    seen_shares = shares[seen]

    def summarise(block: Float[np.ndarray, "position token"], levels: tuple[float, ...]) -> ScaleSummary:
        rows = [_weighted_row(row[seen], seen_shares, levels) for row in block]
        return ScaleSummary(*np.array(rows).T)

    return summarise


def _weighted_row(
    scales: Float[np.ndarray, "token"], shares: Float[np.ndarray, "token"], levels: tuple[float, ...]
) -> list[float]:
    """One position's summary; a row fits into the cache, a block does not."""
    order = np.argsort(scales)
    reached = np.cumsum(shares[order])
    # The same guard against binary fractions as above.
    ranks = np.searchsorted(reached, np.array(levels) * reached[-1] - 1e-12)
    means = [float(np.average(values, weights=shares)) for values in (scales, 1 / scales)]
    return [*means, *(float(scales[order[rank]]) for rank in (0, *ranks, -1))]


BEYOND_CHANCE = 5.0  # standard deviations
EVEN_TIMES = 1.5
INITIAL_TIMES = 1.25
FEWEST_ROWS = 16
MOST = 0.5
RANGE_NAMES = ("initializer_range", "init_std")  # GPT-2's and Whisper's config keys

PerPosition = Float[np.ndarray, "position"]


@dataclass(frozen=True)
class TrainedRange:
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
    """The trained positions of a layer, judged by its position table and config."""
    return range_of_table(layer.weights.position_embeddings, _initial_deviation(layer))


def range_of_table(
    table: Float[np.ndarray, "position d_model"], initial_deviation: float | None = None
) -> TrainedRange:
    """The same for plain rows and their initial standard deviation, if known."""
    variances, alike = table.var(axis=1, dtype=np.float64), neighbour_correlations(table)
    initial = math.nan if initial_deviation is None else initial_deviation**2
    trained = _first_untrained(variances, alike, table.shape[1], initial)
    return TrainedRange(
        positions=len(table),
        trained=trained,
        trained_variance=_median(variances[:trained]),
        untrained_variance=_median(variances[trained:]),
        initial_variance=initial,
        trained_correlation=_median(alike[1:trained]),
        untrained_correlation=_median(alike[trained + 1 :]),
    )


def neighbour_correlations(table: Float[np.ndarray, "position d_model"]) -> PerPosition:
    """Each row's correlation with the previous one; 0 for the first row and for constant rows."""
    rows = table.astype(np.float64)
    rows -= rows.mean(axis=1, keepdims=True)
    sizes = np.linalg.norm(rows, axis=1)
    products, norms = np.einsum("pd,pd->p", rows[1:], rows[:-1]), sizes[1:] * sizes[:-1]
    return np.concatenate([[0.0], np.divide(products, norms, out=np.zeros_like(norms), where=norms > 0)])


def _first_untrained(variances: PerPosition, alike: PerPosition, features: int, initial: float) -> int:
    """The first untrained row, or the number of rows if all are trained."""
    beyond = alike > BEYOND_CHANCE / math.sqrt(features)
    after = int(np.flatnonzero(beyond).max(initial=-1)) + 1
    if after == 0 or len(alike) - after < FEWEST_ROWS:
        return len(alike)
    first = after + _odd_rows(np.log(np.maximum(variances[after:], np.finfo(np.float64).tiny)), features)
    is_rest = (
        min(first, len(alike) - first) >= FEWEST_ROWS
        and _is_as_drawn(variances[first:], features, initial)
        and float(beyond[1:first].mean()) > MOST
    )
    return first if is_rest else len(alike)


def _odd_rows(logs: PerPosition, features: int) -> int:
    """The number of leading rows whose variance differs from most."""
    odd: Bool[np.ndarray, "position"] = np.abs(logs - np.median(logs)) > BEYOND_CHANCE * math.sqrt(2 / features)
    return len(odd) if odd.all() else int(np.argmin(odd))


def _is_as_drawn(variances: PerPosition, features: int, initial: float) -> bool:
    logs = np.log(np.maximum(variances, np.finfo(np.float64).tiny))
    times = max(EVEN_TIMES, 1 + BEYOND_CHANCE / math.sqrt(2 * (len(logs) - 1)))
    is_even = float(logs.std(ddof=1)) <= times * math.sqrt(2 / features)
    return is_even and not _median(variances) > INITIAL_TIMES * initial  # NaN if unknown: always passes


def _initial_deviation(layer: Layer) -> float | None:
    """The standard deviation of initial weights by the config; None without a positive number."""
    config = layer.checkpoint.config
    found = next((config[name] for name in RANGE_NAMES if config.get(name) is not None), None)
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 < found < math.inf:
        return None
    return float(found)


def _median(values: PerPosition) -> float:
    return float(np.median(values)) if len(values) else math.nan


# The paper uses query positions 50, 500 and 1000 of GPT-2's 1024; other lengths use the same fractions.
PAPER_QUERIES, PAPER_LENGTH = (50, 500, 1000), 1024

HeadKey = Float[np.ndarray, "head key"]
Divided = Callable[[float, Float[np.ndarray, "position"]], HeadKey]  # (1/σ of the query, 1/σ of each position) → values


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
    first_key: int = 0


@dataclass(frozen=True)
class OffsetCurve:
    """The position kernel, or its softmax from a query position, by increasing offset."""

    quantity: str
    query_position: int | None
    first_offset: int
    values: Float[np.ndarray, "head offset"]


def offset_curves(layer: Layer, query_positions: Sequence[int], mean: Mean = "vocabulary") -> list[OffsetCurve]:
    """The kernel of rotary or ALiBi positions, and its softmax from each query position."""
    scores = OffsetScores.of(layer, max(query_positions) + 1 if layer.is_causal else trained_length(layer), mean)
    found = [OffsetCurve("p", None, scores.first_offset, scores.kernel)]
    for query in query_positions:
        nearest = query - scores.seen(query).stop + 1
        found.append(OffsetCurve("attention", query, nearest, scores.attention(query)[:, ::-1]))
    return found


def position_curves(
    layer: Layer,
    query_positions: Sequence[int],
    average: Average = "ratio-of-mean",
    token_weights: Float[np.ndarray, "token"] | None = None,
    coverage: float = 0.95,
    watch: Watcher | None = None,
    n_keys: int | None = None,
) -> list[Curve]:
    """Position terms and attention by position alone, with their spread over the vocabulary.

    `average` is the mean to use: score / mean σ, or mean of score / σ. `token_weights` weights the vocabulary, e.g. by
    corpus counts. `coverage` is the share of the vocabulary within the band. `n_keys` is the text length of a
    bidirectional model.
    """
    summary = summarise_scales(layer.scales, token_weights, coverage, watch)
    return list(_curves(PositionScores.of(layer, n_keys), summary, average, query_positions))


def predicted_attention(
    layer: Layer,
    query_positions: Sequence[int],
    average: Average = "ratio-of-mean",
    token_weights: Float[np.ndarray, "token"] | None = None,
    *,
    n_keys: int | None = None,
    mean: Mean = "vocabulary",
) -> list[HeadKey]:
    """Attention by position alone: softmax of Tᵖ + Tᵖᵖ, as [head, key ≤ query] for each query.

    Bidirectional models also have keys after the query, in a text of `n_keys`. With rotary or ALiBi positions it is the
    softmax of the kernel Tᵖ, which depends on `mean`.
    """
    layer.check_positions(query_positions)
    longest = layer.n_positions if n_keys is None else n_keys
    if layer.positions != "learned":
        kernel = OffsetScores.of(layer, max(query_positions) + 1 if layer.is_causal else longest, mean)
        rows = [(kernel.attention(query), kernel.seen(query)) for query in query_positions]
    else:
        inverse = summarise_scales(layer.scales, token_weights).inverse(average)
        scores = PositionScores.of(layer, longest)
        rows = [(scores.attention(query, inverse), scores.seen(query)) for query in query_positions]
    ends = [query + 1 if layer.is_causal else longest for query in query_positions]
    return [  # keys outside a window get no attention
        np.pad(attention, ((0, 0), (seen.start, end - seen.stop)))
        for (attention, seen), end in zip(rows, ends, strict=True)
    ]


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
    layer.check_positions(query_positions)
    return sorted(set(query_positions))


def _curves(scores: PositionScores, summary: ScaleSummary, average: Average, queries: Sequence[int]) -> Iterator[Curve]:
    asserted = scores.self_assertion()
    yield _undivided("p", None, asserted)
    yield _key_curve(asserted, summary, average)
    for query in queries:
        compared, seen = scores.comparison(query), scores.seen(query)
        found = [_undivided("pp", query, compared)]
        found.append(_pair_curve("pp", query, summary, average, _comparison_over(compared, seen)))
        whole = _pair_curve("p+pp", query, summary, average, _sum_over(asserted[:, seen], compared, seen))
        found += [whole, _attention(whole, scores)]
        yield from (replace(curve, first_key=seen.start) for curve in found)


def _undivided(quantity: str, query: int | None, values: HeadKey) -> Curve:
    """Without the division by σ, nothing depends on the token: the band is the value."""
    return Curve(quantity, query, False, values, values, values, values, values)


def _key_curve(asserted: HeadKey, summary: ScaleSummary, average: Average) -> Curve:
    """Mean, band and extremes of Tᵖ, which only depends on the key's σ."""
    one, other = asserted / summary.low, asserted / summary.high
    return Curve(
        "p",
        None,
        True,
        asserted * summary.inverse(average),
        np.minimum(one, other),
        np.maximum(one, other),
        asserted / summary.smallest,
        asserted / summary.largest,
    )


def _comparison_over(compared: HeadKey, seen: slice) -> Divided:
    return lambda query, key: compared * query * key[seen]


def _sum_over(asserted: HeadKey, compared: HeadKey, seen: slice) -> Divided:
    return lambda query, key: (asserted + compared * query) * key[seen]


def _pair_curve(quantity: str, query: int, summary: ScaleSummary, average: Average, divided: Divided) -> Curve:
    """Mean, band and extremes of a quantity that is monotone in the query's σ and in the key's."""
    inverse, low, high = summary.inverse(average), 1 / summary.pair_high, 1 / summary.pair_low
    corners = np.array([divided(float(one[query]), other) for one in (low, high) for other in (low, high)])
    smallest, largest = 1 / summary.smallest, 1 / summary.largest
    return Curve(
        quantity,
        query,
        True,
        divided(float(inverse[query]), inverse),
        corners.min(axis=0),
        corners.max(axis=0),
        divided(float(smallest[query]), smallest),
        divided(float(largest[query]), largest),
    )


def _attention(whole: Curve, scores: PositionScores) -> Curve:
    """softmax of the sum; a band has none, since it is not one row of scores."""
    sums = (whole.mean, whole.at_smallest_scale, whole.at_largest_scale)
    mean, smallest, largest = (scores.softmax(values) for values in sums)
    none = np.full_like(mean, np.nan)
    return Curve("attention", whole.query_position, True, mean, none, none, smallest, largest)
