"""Thin factors: every term is a product of a query factor and a key factor, so W_QK is never built.

query side:  Q_e = E W̃_Q    Q_p = P W̃_Q    q_b = b̃_Q
key side:    K_e = E W̃_K    K_p = P W̃_K
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from detoklens.weights.first_layer import FirstLayer
from detoklens.weights.folding import FoldedLayer


@dataclass(frozen=True)
class Factors:
    """The factors of every token and every position, before any division by σ."""

    query_token: Float[np.ndarray, "head token d_head"]
    query_position: Float[np.ndarray, "head position d_head"]
    query_bias: Float[np.ndarray, "head d_head"]
    key_token: Float[np.ndarray, "head token d_head"]
    key_position: Float[np.ndarray, "head position d_head"]


def factorise(layer: FirstLayer, folded: FoldedLayer) -> Factors:
    """The factors of the whole vocabulary: for GPT-2 small 2 × 154 MB."""
    return Factors(
        query_token=project(layer.token_embeddings, folded.query_weight),
        query_position=project(layer.position_embeddings, folded.query_weight),
        query_bias=folded.query_bias,
        key_token=project(layer.token_embeddings, folded.key_weight),
        key_position=project(layer.position_embeddings, folded.key_weight),
    )


def project(
    vectors: Float[np.ndarray, "row d_model"], weight: Float[np.ndarray, "head d_model d_head"]
) -> Float[np.ndarray, "head row d_head"]:
    """x W̃ for every head, each head's result contiguous."""
    projected = np.empty((weight.shape[0], len(vectors), weight.shape[2]), weight.dtype)
    for head, head_weight in enumerate(weight):
        np.matmul(vectors, head_weight, out=projected[head])
    return projected
