"""The first attention layer as plain arrays, the same for every family; row vectors throughout: y = x W + b."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True)
class FirstLayer:
    """What the scores of layer 0 depend on, as the checkpoint says it, before any folding.

    `attention_scale` is what scores are multiplied by before the softmax: 1/sqrt(d_head), or 1.
    """

    token_embeddings: Float[np.ndarray, "token d_model"]
    position_embeddings: Float[np.ndarray, "position d_model"]
    norm_gain: Float[np.ndarray, "d_model"]
    norm_bias: Float[np.ndarray, "d_model"]
    norm_epsilon: float
    query_weight: Float[np.ndarray, "d_model head d_head"]
    query_bias: Float[np.ndarray, "head d_head"]
    key_weight: Float[np.ndarray, "d_model head d_head"]
    key_bias: Float[np.ndarray, "head d_head"]
    value_weight: Float[np.ndarray, "d_model head d_head"]
    value_bias: Float[np.ndarray, "head d_head"]
    output_weight: Float[np.ndarray, "head d_head d_model"]
    output_bias: Float[np.ndarray, "d_model"]
    attention_scale: float

    def fingerprint(self) -> str:
        """sha256 of all of it in float32, so that the number type asked for does not matter."""
        digest = hashlib.sha256()
        for field in fields(self):
            values = np.ascontiguousarray(getattr(self, field.name), dtype="<f4")
            digest.update(f"{field.name}{values.shape}".encode())
            digest.update(values.data.cast("B") if values.size else b"")
        return digest.hexdigest()
