"""What do positions alone contribute to the score? Tᵖ and Tᵖᵖ as arrays, before and after the division by σ.

    Tᵖ[h, j]     = q_b[h] · K_p[h, j] / σ_j
    Tᵖᵖ[h, i, j] = Q_p[h, i] · K_p[h, j] / (σ_i σ_j)

There are few positions, so everything here is float64, whatever the layer's own type.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from detoklens.scores.factors import project
from detoklens.scores.layer import Layer
from detoklens.scores.softmax import seen_keys, softcapped, softmax
from detoklens.weights.first_layer import FirstLayer


@dataclass(frozen=True)
class PositionScores:
    """Tᵖ and Tᵖᵖ of a layer, not yet divided by σ."""

    query: Float[np.ndarray, "head position d_head"]
    key: Float[np.ndarray, "head position d_head"]
    query_bias: Float[np.ndarray, "head d_head"]
    layer: FirstLayer
    n_keys: int
    """Of a text as long as this: only a model that looks both ways sees how long it is."""

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
        """The keys that a query sees."""
        return seen_keys(query_position, self.n_keys, self.layer.is_causal, self.layer.window)

    def self_assertion(self) -> Float[np.ndarray, "head key"]:
        """Tᵖ × σ_j of every key position."""
        return np.einsum("hk,hjk->hj", self.query_bias, self.key)

    def comparison(self, query_position: int) -> Float[np.ndarray, "head key"]:
        """Tᵖᵖ × σ_i σ_j of the keys that this query sees: in most models positions 0 to its own."""
        return self.compared(query_position, self.seen(query_position))

    def compared(self, query_position: int, keys: slice) -> Float[np.ndarray, "head key"]:
        """Tᵖᵖ × σ_i σ_j of some keys, whether the query sees them or not."""
        return np.einsum("hk,hjk->hj", self.query[:, query_position], self.key[:, keys])

    def attention(self, query_position: int, inverse: Float[np.ndarray, "position"]) -> Float[np.ndarray, "head key"]:
        """softmax over the keys that a query sees of (Tᵖ + Tᵖᵖ) × attention scale; `inverse` is 1/σ."""
        seen = self.seen(query_position)
        comparison = self.comparison(query_position) * float(inverse[query_position])
        return self.softmax((self.self_assertion()[:, seen] + comparison) * inverse[seen])

    def softmax(self, scores: Float[np.ndarray, "head key"]) -> Float[np.ndarray, "head key"]:
        """Attention of scores that are not yet scaled."""
        return softmax(softcapped(scores * self.layer.attention_scale, self.layer.softcap))
