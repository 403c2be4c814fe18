"""Where does position alone pull attention? T^p, T^pp, their sum, and its softmax.

    T^p[h, j] = q_b · K_p[j] / σ_j          T^pp[h, i, j] = Q_p[i] · K_p[j] / (σ_i σ_j)

σ depends on the token, so every number stands for a vocabulary: the value with σ averaged, the band that holds most
tokens, the values at the largest and the smallest σ. T^p depends on one token, the key's, and its band is exact. T^pp
and the sum depend on two; their band is the range of values while both σ stay within bounds that at least the asked
share of all pairs of tokens keeps, so it may be wider than it need be, never narrower.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from jaxtyping import Float

from detoklens.analyses.position_scores import PositionScores
from detoklens.analyses.scale_summary import Average, ScaleSummary, summarise_scales
from detoklens.analyses.watching import Watcher
from detoklens.errors import RangeError
from detoklens.scores.layer import Layer
from detoklens.scores.softmax import softmax
from detoklens.tables.positions import POSITIONS

# The paper looks from positions 50, 500 and 1000 of GPT-2's 1024; other lengths take the same fractions.
PAPER_QUERIES, PAPER_LENGTH = (50, 500, 1000), 1024

HeadKey = Float[np.ndarray, "head key"]
Divided = Callable[[float, Float[np.ndarray, "position"]], HeadKey]  # (1/σ of the query, 1/σ of each position) → values


def positions(
    layer: Layer,
    query_positions: Sequence[int] | None = None,
    average: Average = "ratio-of-mean",
    token_weights: Float[np.ndarray, "token"] | None = None,
    coverage: float = 0.95,
    watch: Watcher | None = None,
) -> pl.DataFrame:
    """Where does position alone pull attention, and how much does that depend on the token?

    `average` names the mean: the score over σ's mean, or the mean of score over σ. `token_weights` weights the
    vocabulary, say by counts in a corpus. `coverage` is the share of the vocabulary within the band.
    """
    queries = chosen_queries(layer, query_positions)
    summary = summarise_scales(layer.scales, token_weights, coverage, watch)
    curves = _curves(PositionScores.of(layer), summary, average, queries)
    return pl.concat([curve.table() for curve in curves])


def predicted_attention(
    layer: Layer,
    query_positions: Sequence[int],
    average: Average = "ratio-of-mean",
    token_weights: Float[np.ndarray, "token"] | None = None,
) -> list[HeadKey]:
    """Where would position alone send attention? softmax of T^p + T^pp, one [head, key ≤ query] for each query."""
    layer.check_positions(query_positions)
    inverse = summarise_scales(layer.scales, token_weights).inverse(average)
    scores = PositionScores.of(layer)
    return [scores.attention(position, inverse) for position in query_positions]


def chosen_queries(layer: Layer, query_positions: Sequence[int] | None) -> list[int]:
    """The query positions asked for, in order; by default about a twentieth, a half and nearly all of the length."""
    if query_positions is None:
        return sorted({layer.n_positions * position // PAPER_LENGTH for position in PAPER_QUERIES})
    if not query_positions:
        raise RangeError("no query position was given; name at least one, as 50,500")
    layer.check_positions(query_positions)
    return sorted(set(query_positions))


@dataclass(frozen=True)
class _Curve:
    """One quantity along the keys, for every head."""

    quantity: str
    query_position: int | None
    layer_norm: bool
    mean: HeadKey
    low: HeadKey
    high: HeadKey
    at_smallest_scale: HeadKey
    at_largest_scale: HeadKey

    def table(self) -> pl.DataFrame:
        n_heads, n_keys = self.mean.shape
        rows = n_heads * n_keys
        return POSITIONS.frame(
            {
                "head": np.repeat(np.arange(n_heads), n_keys),
                "quantity": [self.quantity] * rows,
                "query_position": pl.Series([self.query_position] * rows, dtype=pl.Int32),
                "key_position": np.tile(np.arange(n_keys), n_heads),
                "layer_norm": [self.layer_norm] * rows,
                **{
                    name: getattr(self, name).ravel()
                    for name in ("mean", "low", "high", "at_smallest_scale", "at_largest_scale")
                },
            }
        )


def _curves(
    scores: PositionScores, summary: ScaleSummary, average: Average, queries: Sequence[int]
) -> Iterator[_Curve]:
    asserted = scores.self_assertion()
    yield _undivided("p", None, asserted)
    yield _key_curve(asserted, summary, average)
    for query in queries:
        compared = scores.comparison(query)
        yield _undivided("pp", query, compared)
        yield _pair_curve("pp", query, summary, average, _comparison_over(compared))
        whole = _pair_curve("p+pp", query, summary, average, _sum_over(asserted[:, : query + 1], compared))
        yield whole
        yield _attention(whole, scores.attention_scale)


def _undivided(quantity: str, query: int | None, values: HeadKey) -> _Curve:
    """Without the division by σ nothing depends on the token: the band is the value."""
    return _Curve(quantity, query, False, values, values, values, values, values)


def _key_curve(asserted: HeadKey, summary: ScaleSummary, average: Average) -> _Curve:
    """Mean, band and extremes of T^p, which depends on the key's σ alone."""
    one, other = asserted / summary.low, asserted / summary.high
    return _Curve(
        "p",
        None,
        True,
        asserted * summary.inverse(average),
        np.minimum(one, other),
        np.maximum(one, other),
        asserted / summary.smallest,
        asserted / summary.largest,
    )


def _comparison_over(compared: HeadKey) -> Divided:
    return lambda query, key: compared * query * key[: compared.shape[1]]


def _sum_over(asserted: HeadKey, compared: HeadKey) -> Divided:
    return lambda query, key: (asserted + compared * query) * key[: compared.shape[1]]


def _pair_curve(quantity: str, query: int, summary: ScaleSummary, average: Average, divided: Divided) -> _Curve:
    """Mean, band and extremes of what depends on the query's σ and the key's; it is monotone in each of the two."""
    inverse, low, high = summary.inverse(average), 1 / summary.pair_high, 1 / summary.pair_low
    corners = np.array([divided(float(one[query]), other) for one in (low, high) for other in (low, high)])
    smallest, largest = 1 / summary.smallest, 1 / summary.largest
    return _Curve(
        quantity,
        query,
        True,
        divided(float(inverse[query]), inverse),
        corners.min(axis=0),
        corners.max(axis=0),
        divided(float(smallest[query]), smallest),
        divided(float(largest[query]), largest),
    )


def _attention(whole: _Curve, attention_scale: float) -> _Curve:
    """softmax of a sum; a band of sums has no softmax, since it is no one row of scores."""
    mean, smallest, largest = (
        softmax(scores * attention_scale) for scores in (whole.mean, whole.at_smallest_scale, whole.at_largest_scale)
    )
    none = np.full_like(mean, np.nan)
    return _Curve("attention", whole.query_position, True, mean, none, none, smallest, largest)
