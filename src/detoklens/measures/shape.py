"""What shape do the position terms have? Tᵖ against a line, Tᵖᵖ against waves, the pull of their sum.

1. The line: least squares through Tᵖ over the trained positions but the outliers of `variance`, whose σ is odd.
2. The waves: Tᵖᵖ at a query position i along the keys 0 … i, the same left out (see `trained_range` and `waves`).
3. The pull: softmax of Tᵖ + Tᵖᵖ over all keys 0 … i: where its mass is, its entropy, its class.

The class of a row of attention, with the keys 0 to i of a query at i, is the first rule that holds:

| class          | rule                                                                                        |
|----------------|---------------------------------------------------------------------------------------------|
| self           | at least half of the mass on the query itself                                               |
| previous token | at least half on the token before it                                                        |
| next token     | at least half on the token after it, in a model that looks both ways                        |
| first          | at least half on position 0                                                                 |
| local          | at least half on the last 15 tokens, or on the last quarter of the keys where that is fewer |
| broad          | none of these                                                                               |

σ is averaged over the vocabulary throughout. A model that looks both ways is local where the keys as near after the
query make up the half, too. Of rotary and ALiBi positions the line and the waves are those of the kernel (see
`offset_scores`) along the keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from detoklens.measures.offset_scores import OffsetScores
from detoklens.measures.position_scores import PositionScores
from detoklens.measures.positions import trained_length
from detoklens.measures.scale_summary import Average, summarise_scales
from detoklens.measures.trained_range import trained_range
from detoklens.measures.variance import outliers
from detoklens.measures.waves import Wave, is_sinusoidal, leading_waves
from detoklens.progress import Watcher
from detoklens.scores.common_part import Mean
from detoklens.scores.layer import Layer

LINEAR_R_SQUARED = 0.9
# A random curve of 16 points has an R² of 0.9 once in 100 million; of 4 points, once in 20.
FEWEST_POINTS = 16
ROUNDING = 1e-12  # below this share of a curve's size, its variation is rounding
NEAR = (1, 5, 15)  # of so many last keys the mass is told
MOST = 0.5

HeadKey = Float[np.ndarray, "head key"]


@dataclass(frozen=True)
class Line:
    """The best line of each head; R² is NaN where the curve does not vary."""

    slope: Float[np.ndarray, "head"]
    r_squared: Float[np.ndarray, "head"]
    n_points: int

    def linear(self) -> list[bool | None]:
        """Whether each curve is a line; None where it does not vary, or has too few points to tell."""
        if self.n_points < FEWEST_POINTS:
            return [None] * len(self.slope)
        return [None if np.isnan(value) else bool(value >= LINEAR_R_SQUARED) for value in self.r_squared]


@dataclass(frozen=True)
class SeenFrom:
    """What one query position sees: each head's leading waves of Tᵖᵖ, and the softmax of Tᵖ + Tᵖᵖ."""

    query_position: int
    waves: list[list[Wave]]
    sinusoidal: list[bool | None]
    attention: HeadKey
    first_key: int
    """Position of the first key that it sees."""

    @property
    def place(self) -> int:
        """Where the query itself stands among the keys that it sees: last, unless it sees later ones."""
        return self.query_position - self.first_key


@dataclass(frozen=True)
class PositionShape:
    """The line through Tᵖ, its slope as ALiBi would call it, and what each query position sees."""

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
) -> PositionShape:
    """Is Tᵖ a line, is Tᵖᵖ a wave, and how near does their sum pull attention?

    Of rotary and ALiBi positions there is one curve, the kernel, which `mean` decides: is it a line, is it a wave?
    """
    if layer.positions != "learned":
        return _kernel_shape(layer, query_positions, mean)
    inverse = summarise_scales(layer.scales, token_weights, watch=watch).inverse(average)
    scores = PositionScores.of(layer, n_keys)
    usual = np.flatnonzero(~outliers(layer.scales.position_variance[: trained_range(layer).trained]))
    line = best_line((scores.self_assertion() * inverse)[:, usual], usual)
    seen = [_seen_from(query, scores, inverse, usual) for query in query_positions]
    return PositionShape(line, line.slope * layer.attention_scale, seen)


def _kernel_shape(layer: Layer, query_positions: Sequence[int], mean: Mean) -> PositionShape:
    """The kernel along the keys, as the last query sees it: a line, waves, a pull."""
    n_keys = max(query_positions) + 1 if layer.is_causal else trained_length(layer)
    scores, last = OffsetScores.of(layer, n_keys, mean), max(query_positions)
    line = best_line(scores.along(last), _places(scores.seen(last)))
    seen = []
    for query in query_positions:
        keys = _places(scores.seen(query))
        waves = leading_waves(scores.along(query), keys)
        sinusoidal = [is_sinusoidal(found, len(keys)) for found in waves]
        seen.append(SeenFrom(query, waves, sinusoidal, scores.attention(query), int(keys[0])))
    return PositionShape(line, line.slope * layer.attention_scale, seen)


def _places(keys: slice) -> Int[np.ndarray, "key"]:
    return np.arange(keys.start, keys.stop)


def _seen_from(
    query: int,
    scores: PositionScores,
    inverse: Float[np.ndarray, "position"],
    usual: Int[np.ndarray, "usual"],
) -> SeenFrom:
    seen = scores.seen(query)
    keys = usual[(usual >= seen.start) & (usual < seen.stop)]
    curves = scores.comparison(query)[:, keys - seen.start] * inverse[query] * inverse[keys]
    waves = leading_waves(curves, keys)
    sinusoidal = [is_sinusoidal(found, len(keys)) for found in waves]
    return SeenFrom(query, waves, sinusoidal, scores.attention(query, inverse), seen.start)


def best_line(curves: HeadKey, places: Int[np.ndarray, "key"]) -> Line:
    """slope = Cov(place, value) / Var(place), R² = 1 − Var(value − line) / Var(value)."""
    if len(places) < 2:
        return Line(np.zeros(len(curves)), np.full(len(curves), np.nan), len(places))
    x = places - places.mean()
    y = curves - curves.mean(axis=1, keepdims=True)
    slope = y @ x / (x @ x)
    left = np.square(y - slope[:, None] * x).sum(axis=1)
    varies = _does_vary(curves)
    total = np.square(y).sum(axis=1)
    r_squared = np.where(varies, 1 - left / np.where(varies, total, 1), np.nan)
    return Line(np.where(varies, slope, 0.0), r_squared, len(places))


def _does_vary(curves: HeadKey) -> Bool[np.ndarray, "head"]:
    """Whether a curve is more than a constant and its rounding."""
    return np.ptp(curves, axis=1) > ROUNDING * np.abs(curves).max(axis=1)


def mass_on_last(attention: HeadKey, count: int, place: int | None = None) -> Float[np.ndarray, "head"]:
    """Attention on the last `count` keys up to the query, which stands at `place`: by default last."""
    end = attention.shape[1] if place is None else place + 1
    return attention[:, max(0, end - count) : end].sum(axis=1)


def mass_on_next(attention: HeadKey, count: int, place: int) -> Float[np.ndarray, "head"]:
    """Attention on the `count` keys after the query."""
    return attention[:, place + 1 : place + 1 + count].sum(axis=1)


def mass_on_previous(attention: HeadKey, place: int | None = None) -> Float[np.ndarray, "head"]:
    """Attention on the token before the query; NaN where there is none."""
    before = (attention.shape[1] - 1 if place is None else place) - 1
    return attention[:, before] if before >= 0 else np.full(len(attention), np.nan)


def mass_on_first(attention: HeadKey, first_key: int = 0) -> Float[np.ndarray, "head"]:
    """Attention on position 0: none where a query does not see it."""
    return attention[:, 0] if first_key == 0 else np.zeros(len(attention))


def entropy(attention: HeadKey) -> Float[np.ndarray, "head"]:
    """−Σ α log2 α, in bits; a key without attention adds nothing."""
    bits = -np.log2(attention, out=np.zeros_like(attention), where=attention > 0)
    return np.einsum("hj,hj->h", attention, bits)


def classes(attention: HeadKey, place: int | None = None, first_key: int = 0) -> list[str]:
    """The class of each head, by the rules above."""
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
