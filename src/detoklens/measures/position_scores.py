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
from detoklens.scores.softmax import seen_keys, softcapped, softmax
from detoklens.weights.first_layer import FirstLayer


@dataclass(frozen=True)
class PositionScores:
    """T^p and T^pp of a layer, not yet divided by σ."""

    query: Float[np.ndarray, "head position d_head"]
    key: Float[np.ndarray, "head position d_head"]
    query_bias: Float[np.ndarray, "head d_head"]
    layer: FirstLayer

    @classmethod
    def of(cls, layer: Layer) -> PositionScores:
        positions, folded = layer.weights.position_embeddings.astype(np.float64), layer.folded
        return cls(
            query=project(positions, folded.query_weight.astype(np.float64)),
            key=project(positions, folded.key_weight.astype(np.float64)),
            query_bias=folded.query_bias.astype(np.float64),
            layer=layer.weights,
        )

    def seen(self, query_position: int, n_keys: int | None = None) -> slice:
        """The keys that a query sees, of a text of so many; by default of all positions."""
        keys = self.key.shape[1] if n_keys is None else n_keys
        return seen_keys(query_position, keys, self.layer.is_causal, self.layer.window)

    def self_assertion(self) -> Float[np.ndarray, "head key"]:
        """T^p × σ_j of every key position."""
        return np.einsum("hk,hjk->hj", self.query_bias, self.key)

    def comparison(self, query_position: int, n_keys: int | None = None) -> Float[np.ndarray, "head key"]:
        """T^pp × σ_i σ_j of the keys that this query sees: in most models positions 0 to its own."""
        return self.compared(query_position, self.seen(query_position, n_keys))

    def compared(self, query_position: int, keys: slice) -> Float[np.ndarray, "head key"]:
        """T^pp × σ_i σ_j of some keys, whether the query sees them or not."""
        return np.einsum("hk,hjk->hj", self.query[:, query_position], self.key[:, keys])

    def attention(
        self, query_position: int, inverse: Float[np.ndarray, "position"], n_keys: int | None = None
    ) -> Float[np.ndarray, "head key"]:
        """softmax over the keys that a query sees of (T^p + T^pp) × attention scale; `inverse` is 1/σ."""
        seen = self.seen(query_position, n_keys)
        comparison = self.comparison(query_position, n_keys) * float(inverse[query_position])
        return self.softmax((self.self_assertion()[:, seen] + comparison) * inverse[seen])

    def softmax(self, scores: Float[np.ndarray, "head key"]) -> Float[np.ndarray, "head key"]:
        """Attention of scores that are not yet scaled."""
        return softmax(softcapped(scores * self.layer.attention_scale, self.layer.softcap))
