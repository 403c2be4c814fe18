"""What does distance alone contribute to the score? The position kernel Tᵖ of rotary and ALiBi positions.

    Tᵖ[h, i, j] = a R_δ b,  δ = i − j        ALiBi: −slope · δ / attention scale

a and b are what all queries and all keys have in common (see `scores.terms`), so nothing here depends on a token.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from detoklens.scores.common_part import Mean
from detoklens.scores.layer import Layer
from detoklens.scores.softmax import seen_keys, softcapped, softmax
from detoklens.weights.first_layer import FirstLayer


@dataclass(frozen=True)
class OffsetScores:
    """The kernel at the offsets 1 − n_keys to n_keys − 1 of a text of n_keys; of a causal model from 0 on."""

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
        """The keys that a query sees."""
        return seen_keys(query_position, self.n_keys, self.layer.is_causal, self.layer.window)

    def along(self, query_position: int) -> Float[np.ndarray, "head key"]:
        """Tᵖ of the keys that a query sees."""
        seen = self.seen(query_position)
        return self.kernel[:, query_position - np.arange(seen.start, seen.stop) - self.first_offset]

    def attention(self, query_position: int) -> Float[np.ndarray, "head key"]:
        """softmax of the kernel over the keys that a query sees."""
        return softmax(softcapped(self.along(query_position) * self.layer.attention_scale, self.layer.softcap))
