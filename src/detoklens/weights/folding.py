"""Folding LayerNorm into the projections, exactly.

With C = I − (1/d)·1ᵀ1:  LN(x) = (x / σ(x)) · C · diag(γ) + β, so that

    W̃ = C diag(γ) W        b̃ = β W + b        for queries, keys and values,

and LayerNorm shrinks to x ↦ x / σ(x). b̃_K adds a number to each row of scores that does not depend on the key, so the
softmax cancels it: it is dropped from the scores and kept only to prove that. With rotary positions it does depend on
the key's place, and stays. RMSNorm folds without C and β; without any norm W̃ = W.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from detoklens.weights.first_layer import FirstLayer


@dataclass(frozen=True)
class FoldedLayer:
    """The projections with the norm's centring, gain and bias inside; the output projection is as it was."""

    query_weight: Float[np.ndarray, "head d_model d_head"]
    query_bias: Float[np.ndarray, "head d_head"]
    key_weight: Float[np.ndarray, "key_head d_model d_head"]
    key_bias: Float[np.ndarray, "key_head d_head"]
    value_weight: Float[np.ndarray, "key_head d_model d_head"]
    value_bias: Float[np.ndarray, "key_head d_head"]
    output_weight: Float[np.ndarray, "head d_head d_model"]
    output_bias: Float[np.ndarray, "d_model"]


def fold(layer: FirstLayer) -> FoldedLayer:
    """Fold queries, keys and values."""
    query_weight, query_bias = _fold_projection(layer, layer.query_weight, layer.query_bias)
    key_weight, key_bias = _fold_projection(layer, layer.key_weight, layer.key_bias)
    value_weight, value_bias = _fold_projection(layer, layer.value_weight, layer.value_bias)
    return FoldedLayer(
        query_weight,
        query_bias,
        key_weight,
        key_bias,
        value_weight,
        value_bias,
        layer.output_weight,
        layer.output_bias,
    )


def _fold_projection(
    layer: FirstLayer,
    weight: Float[np.ndarray, "d_model head d_head"],
    bias: Float[np.ndarray, "head d_head"],
) -> tuple[Float[np.ndarray, "head d_model d_head"], Float[np.ndarray, "head d_head"]]:
    """Fold in float64 (these matrices are small), keep in the layer's own type."""
    stored = weight.astype(np.float64)
    gained = layer.norm_gain.astype(np.float64)[:, None, None] * stored
    if layer.norm_kind == "layer":
        gained -= gained.mean(axis=0)
    folded_bias = np.einsum("d,dhk->hk", layer.norm_bias.astype(np.float64), stored) + bias
    return np.ascontiguousarray(gained.transpose(1, 0, 2), weight.dtype), folded_bias.astype(weight.dtype)
