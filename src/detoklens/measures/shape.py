"""Shape of the position terms: a line through Tᵖ, waves of Tᵖᵖ, and attention by position alone.

1. Line: least squares through Tᵖ over the trained positions, without the outliers of `variance`.
2. Waves: Tᵖᵖ at a query position i along the keys 0 … i, without the same positions (see `trained_range` and `waves`).
3. Attention by position alone: softmax of Tᵖ + Tᵖᵖ over all keys 0 … i; its mass, entropy and class.

The class of a row of attention, over keys 0 to i for a query at i, is the first rule that holds:

| class          | rule                                                                                        |
|----------------|---------------------------------------------------------------------------------------------|
| self           | at least half of the mass on the query itself                                               |
| previous token | at least half on the token before it                                                        |
| next token     | at least half on the token after it, in bidirectional models                                |
| first          | at least half on position 0                                                                 |
| local          | at least half on the last 15 tokens, or on the last quarter of the keys if that is fewer    |
| broad          | none of these                                                                               |

σ is averaged over the vocabulary throughout. For bidirectional models, the keys equally near after the query also count
as local. With rotary and ALiBi positions, line and waves are those of the kernel (see `OffsetScores`) along the keys.

A line or wave must exceed a control, corrected for the number of heads (see `chance`):

- Learned positions: random walks. Neighbouring rows of a trained table are similar, so any curve over them drifts, and
  a drift alone has R² ≥ 0.9 in 4 % of cases and half of its power in one wave in 25 %.
- Rotary positions: kernels of random mean vectors. Each kernel is a sum of the model's few frequencies, so one wave
  often dominates for any mean query and key.
- ALiBi: none. Its kernel is a line by construction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int

from detoklens.measures.chance import ALPHA, draws_for, holm, tail_probability
from detoklens.measures.positions import (
    Average,
    OffsetScores,
    PositionScores,
    summarise_scales,
    trained_length,
    trained_range,
)
from detoklens.measures.variance import outliers
from detoklens.measures.waves import FEWEST_KEYS, Wave, is_sinusoidal, leading_waves, shares_in_view
from detoklens.progress import Watcher
from detoklens.scores.factors import Mean, rotated_by_offset
from detoklens.scores.layer import Layer

LINEAR_R_SQUARED = 0.9
# A random curve of 16 points has an R² of 0.9 once in 100 million; of 4 points, once in 20.
FEWEST_POINTS = 16
ROUNDING = 1e-12  # variation below this share of a curve's size is rounding error
NEAR = (1, 5, 15)  # numbers of last keys whose mass is reported
MOST = 0.5
LONGEST_WALK = 128  # random walks are self-similar: longer ones only take longer

HeadKey = Float[np.ndarray, "head key"]


@dataclass(frozen=True)
class Beyond:
    """The control's 95th percentile, and each head's Holm-adjusted p."""

    null_high: float
    p: Float[np.ndarray, "head"]

    @classmethod
    def of(cls, observed: Float[np.ndarray, "head"], null: Float[np.ndarray, "draw"]) -> Beyond:
        """Heads whose statistic is NaN are not tested."""
        p = [np.nan if np.isnan(value) else tail_probability(value, null) for value in observed]
        return cls(float(np.quantile(null, 0.95)), holm(np.array(p)))


@dataclass(frozen=True)
class Line:
    """The best line of each head; R² is NaN for a constant curve."""

    slope: Float[np.ndarray, "head"]
    r_squared: Float[np.ndarray, "head"]
    n_points: int
    beyond: Beyond | None = None
    """Comparison of R² with the control; None without a control."""

    def linear(self) -> list[bool | None]:
        """Whether each curve is a line beyond its control; None if constant or with too few points."""
        if self.n_points < FEWEST_POINTS:
            return [None] * len(self.slope)
        is_line = self.r_squared >= LINEAR_R_SQUARED
        if self.beyond is not None:
            is_line &= self.beyond.p <= ALPHA
        return [None if np.isnan(value) else bool(is_line[head]) for head, value in enumerate(self.r_squared)]


@dataclass(frozen=True)
class SeenFrom:
    """Each head from one query position: the leading waves of Tᵖᵖ, and the softmax of Tᵖ + Tᵖᵖ."""

    query_position: int
    waves: list[list[Wave]]
    beyond: Beyond | None
    """Comparison of the leading waves' shares with the control; None without a control."""
    n_keys: int
    """Number of keys the waves are fitted to."""
    attention: HeadKey
    first_key: int
    """Position of the first visible key."""

    @property
    def sinusoidal(self) -> list[bool | None]:
        """Whether each head's curve is a wave beyond its control; None if untestable."""
        found = [is_sinusoidal(waves, self.n_keys) for waves in self.waves]
        if self.beyond is None:
            return found
        return [is_wave and bool(p <= ALPHA) for is_wave, p in zip(found, self.beyond.p, strict=True)]

    @property
    def place(self) -> int:
        """The index of the query itself among the visible keys: the last in causal models."""
        return self.query_position - self.first_key


@dataclass(frozen=True)
class PositionShape:
    """The line through Tᵖ, its slope in ALiBi's units, and the results from each query position."""

    line: Line
    alibi_slope: Float[np.ndarray, "head"]
    queries: list[SeenFrom]


def position_shape(
    layer: Layer,
    query_positions: Sequence[int],
    average: Average = "ratio-of-mean",
    token_weights: Float[np.ndarray, "token"] | None = None,
    watch: Watcher | None = None,
    mean: Mean = "vocabulary",
    n_keys: int | None = None,
    seed: int = 0,
) -> PositionShape:
    """Line, waves and attention by position alone, from each query position.

    Rotary and ALiBi positions have one curve, the kernel, which depends on `mean`. The seed draws the controls.
    """
    random = np.random.default_rng(seed)
    if layer.positions != "learned":
        return _kernel_shape(layer, query_positions, mean, random)
    inverse = summarise_scales(layer.scales, token_weights, watch=watch).inverse(average)
    scores = PositionScores.of(layer, n_keys)
    usual = np.flatnonzero(~outliers(layer.scales.position_variance[: trained_range(layer).trained]))
    line = best_line((scores.self_assertion() * inverse)[:, usual], usual)
    line = replace(line, beyond=_line_beyond(line, _random_walks(layer.n_heads, len(usual), random)))
    seen = [_seen_from(query, scores, inverse, usual, random) for query in query_positions]
    return PositionShape(line, line.slope * layer.attention_scale, seen)


def _kernel_shape(
    layer: Layer, query_positions: Sequence[int], mean: Mean, random: np.random.Generator
) -> PositionShape:
    """The line is fitted to the kernel along the keys of the last query."""
    n_keys = max(query_positions) + 1 if layer.is_causal else trained_length(layer)
    scores, last = OffsetScores.of(layer, n_keys, mean), max(query_positions)
    draws = _random_kernels(layer, scores, random) if layer.positions == "rotary" else None
    line = best_line(scores.along(last), _places(scores.seen(last)))
    if draws is not None:
        line = replace(line, beyond=_line_beyond(line, draws.along(last)))
    seen = []
    for query in query_positions:
        keys, curves = _places(scores.seen(query)), scores.along(query)
        beyond = None if draws is None else _waves_beyond(curves, keys, draws.along(query))
        waves = leading_waves(curves, keys)
        seen.append(SeenFrom(query, waves, beyond, len(keys), scores.attention(query), int(keys[0])))
    return PositionShape(line, line.slope * layer.attention_scale, seen)


def _random_kernels(layer: Layer, scores: OffsetScores, random: np.random.Generator) -> OffsetScores:
    """The kernels of mean queries and keys of random direction, as random weights would give."""
    queries, keys = random.normal(size=(2, draws_for(layer.n_heads), layer.d_head))
    offsets = range(scores.first_offset, scores.first_offset + scores.kernel.shape[1])
    turned = [np.einsum("rd,rd->r", rotated_by_offset(layer.weights, queries, offset), keys) for offset in offsets]
    return replace(scores, kernel=np.stack(turned, axis=1))


def _random_walks(n_heads: int, n_points: int, random: np.random.Generator) -> Float[np.ndarray, "draw point"]:
    return random.normal(size=(draws_for(n_heads), min(n_points, LONGEST_WALK))).cumsum(axis=1)


def _line_beyond(line: Line, draws: Float[np.ndarray, "draw point"]) -> Beyond | None:
    if line.n_points < FEWEST_POINTS:
        return None
    return Beyond.of(line.r_squared, best_line(draws, np.arange(draws.shape[1])).r_squared)


def _waves_beyond(
    curves: HeadKey, keys: Int[np.ndarray, "key"], draws: Float[np.ndarray, "draw point"]
) -> Beyond | None:
    if len(keys) < FEWEST_KEYS:
        return None
    return Beyond.of(shares_in_view(curves, keys), shares_in_view(draws, np.arange(draws.shape[1])))


def _places(keys: slice) -> Int[np.ndarray, "key"]:
    return np.arange(keys.start, keys.stop)


def _seen_from(
    query: int,
    scores: PositionScores,
    inverse: Float[np.ndarray, "position"],
    usual: Int[np.ndarray, "usual"],
    random: np.random.Generator,
) -> SeenFrom:
    seen = scores.seen(query)
    keys = usual[(usual >= seen.start) & (usual < seen.stop)]
    curves = scores.comparison(query)[:, keys - seen.start] * inverse[query] * inverse[keys]
    beyond = _waves_beyond(curves, keys, _random_walks(len(curves), len(keys), random))
    waves = leading_waves(curves, keys)
    return SeenFrom(query, waves, beyond, len(keys), scores.attention(query, inverse), seen.start)


def best_line(curves: HeadKey, places: Int[np.ndarray, "key"]) -> Line:
    """slope = Cov(place, value) / Var(place), R² = 1 − Var(value − line) / Var(value)."""
    if len(places) < 2:
        return Line(np.zeros(len(curves)), np.full(len(curves), np.nan), len(places))
    x = places - places.mean()
    y = curves - curves.mean(axis=1, keepdims=True)
    slope = y @ x / (x @ x)
    left = np.square(y - slope[:, None] * x).sum(axis=1)
    varies = np.ptp(curves, axis=1) > ROUNDING * np.abs(curves).max(axis=1)
    total = np.square(y).sum(axis=1)
    r_squared = np.where(varies, 1 - left / np.where(varies, total, 1), np.nan)
    return Line(np.where(varies, slope, 0.0), r_squared, len(places))


def mass_on_last(attention: HeadKey, count: int, place: int | None = None) -> Float[np.ndarray, "head"]:
    """Attention on the last `count` keys up to the query, whose index is `place` (default: the last)."""
    end = attention.shape[1] if place is None else place + 1
    return attention[:, max(0, end - count) : end].sum(axis=1)


def mass_on_next(attention: HeadKey, count: int, place: int) -> Float[np.ndarray, "head"]:
    """Attention on the `count` keys after the query."""
    return attention[:, place + 1 : place + 1 + count].sum(axis=1)


def mass_on_previous(attention: HeadKey, place: int | None = None) -> Float[np.ndarray, "head"]:
    """Attention on the token before the query; NaN without one."""
    before = (attention.shape[1] - 1 if place is None else place) - 1
    return attention[:, before] if before >= 0 else np.full(len(attention), np.nan)


def mass_on_first(attention: HeadKey, first_key: int = 0) -> Float[np.ndarray, "head"]:
    """Attention on position 0; 0 if it is not visible."""
    return attention[:, 0] if first_key == 0 else np.zeros(len(attention))


def entropy(attention: HeadKey) -> Float[np.ndarray, "head"]:
    """−Σ α log2 α, in bits; a key without attention adds nothing."""
    bits = -np.log2(attention, out=np.zeros_like(attention), where=attention > 0)
    return np.einsum("hj,hj->h", attention, bits)


def classes(attention: HeadKey, place: int | None = None, first_key: int = 0) -> list[str]:
    """The class of each head, by the rules at the top of the module."""
    at = attention.shape[1] - 1 if place is None else place
    nearby = min(NEAR[-1], max(1, attention.shape[1] // 4))
    rules = {
        "self": mass_on_last(attention, 1, at),
        "previous token": mass_on_previous(attention, at),
        "next token": mass_on_next(attention, 1, at),
        "first": mass_on_first(attention, first_key),
        "local": mass_on_last(attention, nearby, at) + mass_on_next(attention, nearby - 1, at),
    }
    return [
        next((name for name, mass in rules.items() if mass[head] >= MOST), "broad") for head in range(len(attention))
    ]
