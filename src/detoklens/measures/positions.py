"""Where does position alone pull attention? Tᵖ, Tᵖᵖ, their sum, and its softmax.

    Tᵖ[h, j] = q_b · K_p[j] / σ_j          Tᵖᵖ[h, i, j] = Q_p[i] · K_p[j] / (σ_i σ_j)

σ depends on the token, so every number stands for a vocabulary: the value with σ averaged, the band that holds most
tokens, the values at the largest and the smallest σ. Tᵖ depends on one token, the key's, and its band is exact. Tᵖᵖ
and the sum depend on two; their band is the range of values while both σ stay within bounds that at least the asked
share of all pairs of tokens keeps, so it may be wider than it need be, never narrower.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from detoklens.errors import RangeError
from detoklens.measures.offset_scores import OffsetScores
from detoklens.measures.position_scores import PositionScores
from detoklens.measures.scale_summary import Average, ScaleSummary, summarise_scales
from detoklens.measures.trained_range import trained_range
from detoklens.progress import Watcher
from detoklens.scores.common_part import Mean
from detoklens.scores.layer import Layer

# The paper looks from positions 50, 500 and 1000 of GPT-2's 1024; other lengths take the same fractions.
PAPER_QUERIES, PAPER_LENGTH = (50, 500, 1000), 1024

HeadKey = Float[np.ndarray, "head key"]
Divided = Callable[[float, Float[np.ndarray, "position"]], HeadKey]  # (1/σ of the query, 1/σ of each position) → values


@dataclass(frozen=True)
class Curve:
    """One quantity along the keys, for every head: p, pp, p+pp or attention, from a query position where it has one."""

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
    """The position kernel, or its softmax from a query position, along the offsets from the smallest to the largest."""

    quantity: str
    query_position: int | None
    first_offset: int
    values: Float[np.ndarray, "head offset"]


def offset_curves(layer: Layer, query_positions: Sequence[int], mean: Mean = "vocabulary") -> list[OffsetCurve]:
    """Where does distance alone pull attention, with rotary or ALiBi positions? The kernel, and its softmax."""
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
    """Where does position alone pull attention, and how much does that depend on the token?

    `average` names the mean: the score over σ's mean, or the mean of score over σ. `token_weights` weights the
    vocabulary, say by counts in a corpus. `coverage` is the share of the vocabulary within the band. Where a model
    looks both ways, the text has `n_keys`.
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
    """Where would position alone send attention? softmax of Tᵖ + Tᵖᵖ, one [head, key ≤ query] for each query.

    A model that looks both ways has keys after the query, too: those of a text of `n_keys`. With rotary or ALiBi
    positions it is the softmax of the kernel Tᵖ, which `mean` decides.
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
    return [_of_all_keys(row, seen, end) for (row, seen), end in zip(rows, ends, strict=True)]


def _of_all_keys(attention: HeadKey, seen: slice, n_keys: int) -> HeadKey:
    """The same for all keys: those beyond a window get nothing."""
    return np.pad(attention, ((0, 0), (seen.start, n_keys - seen.stop)))


def trained_length(layer: Layer) -> int:
    """How many positions are worth looking at? The trained ones; of rotary and ALiBi models as many as the paper's."""
    return trained_range(layer).trained if layer.positions == "learned" else min(layer.n_positions, PAPER_LENGTH)


def chosen_queries(layer: Layer, query_positions: Sequence[int] | None, length: int | None = None) -> list[int]:
    """The query positions asked for, in order; by default about a twentieth, a half and nearly all of the length.

    The length is that of the trained positions, or the one given where that is less.
    """
    if query_positions is None:
        trained = trained_length(layer)
        within = trained if length is None else min(trained, length)
        return sorted({within * position // PAPER_LENGTH for position in PAPER_QUERIES})
    if not query_positions:
        raise RangeError("no query position was given; name at least one, as 50,500")
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
    """Without the division by σ nothing depends on the token: the band is the value."""
    return Curve(quantity, query, False, values, values, values, values, values)


def _key_curve(asserted: HeadKey, summary: ScaleSummary, average: Average) -> Curve:
    """Mean, band and extremes of Tᵖ, which depends on the key's σ alone."""
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
    """Mean, band and extremes of what depends on the query's σ and the key's; it is monotone in each of the two."""
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
    """softmax of a sum; a band of sums has no softmax, since it is no one row of scores."""
    sums = (whole.mean, whole.at_smallest_scale, whole.at_largest_scale)
    mean, smallest, largest = (scores.softmax(values) for values in sums)
    none = np.full_like(mean, np.nan)
    return Curve("attention", whole.query_position, True, mean, none, none, smallest, largest)
