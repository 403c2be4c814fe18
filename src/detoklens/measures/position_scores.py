"""What do positions alone contribute to the score? T^p and T^pp as arrays, before and after the division by σ.

    T^p[h, j]     = q_b[h] · K_p[h, j] / σ_j
    T^pp[h, i, j] = Q_p[h, i] · K_p[h, j] / (σ_i σ_j)

There are few positions, so everything here is float64, whatever the layer's own type.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from detoklens.scores.factors import project
from detoklens.scores.layer import Layer
from detoklens.scores.softmax import softmax


@dataclass(frozen=True)
class PositionScores:
    """T^p and T^pp of a layer, not yet divided by σ."""

    query: Float[np.ndarray, "head position d_head"]
    key: Float[np.ndarray, "head position d_head"]
    query_bias: Float[np.ndarray, "head d_head"]
    attention_scale: float

    @classmethod
    def of(cls, layer: Layer) -> PositionScores:
        positions, folded = layer.weights.position_embeddings.astype(np.float64), layer.folded
        return cls(
            query=project(positions, folded.query_weight.astype(np.float64)),
            key=project(positions, folded.key_weight.astype(np.float64)),
            query_bias=folded.query_bias.astype(np.float64),
            attention_scale=layer.attention_scale,
        )

    def self_assertion(self) -> Float[np.ndarray, "head key"]:
        """T^p × σ_j of every key position."""
        return np.einsum("hk,hjk->hj", self.query_bias, self.key)

    def comparison(self, query_position: int) -> Float[np.ndarray, "head key"]:
        """T^pp × σ_i σ_j of the keys that this query sees: positions 0 to its own."""
        return np.einsum("hk,hjk->hj", self.query[:, query_position], self.key[:, : query_position + 1])

    def scaled_sum(
        self, query_position: int, query_inverse: float, key_inverse: Float[np.ndarray, "position"]
    ) -> Float[np.ndarray, "head key"]:
        """T^p + T^pp at one query position, with given numbers in place of 1/σ."""
        seen = slice(query_position + 1)
        comparison = self.comparison(query_position) * query_inverse
        return (self.self_assertion()[:, seen] + comparison) * key_inverse[seen]

    def attention(self, query_position: int, inverse: Float[np.ndarray, "position"]) -> Float[np.ndarray, "head key"]:
        """softmax over keys ≤ query of (T^p + T^pp) × attention scale."""
        scores = self.scaled_sum(query_position, float(inverse[query_position]), inverse)
        return softmax(scores * self.attention_scale)
