"""Symmetry, effective rank and norm of W_QK, computed from its thin factors.

    W = Q Kᵀ with Q = W̃_Q, K = W̃_K, both d × d'        |W|² = tr(QᵀQ KᵀK)        tr(W W) = tr(KᵀQ KᵀQ)
    S = (W + Wᵀ)/2:  |S|² = (|W|² + tr(W W))/2          A = (W − Wᵀ)/2:  |A|² = (|W|² − tr(W W))/2

The singular values of W are those of R_Q R_Kᵀ, a d' × d' matrix, where Q = U_Q R_Q and K = U_K R_K.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from detoklens.scores.factors import rotated_by_offset
from detoklens.scores.layer import Layer


@dataclass(frozen=True)
class BilinearForm:
    """Properties of one head's W_QK; NaN if W_QK is 0."""

    symmetric_share: float
    antisymmetric_share: float
    effective_rank: float
    participation_ratio: float
    spectral_norm: float


def bilinear_form(layer: Layer, head: int, offset: int = 1) -> BilinearForm:
    """The properties of one head's W_QK; with rotary positions, of W̃_Q R_δ W̃_Kᵀ at one offset δ."""
    own_keys = head // layer.weights.heads_per_key
    query = rotated_by_offset(layer.weights, layer.folded.query_weight[head].astype(np.float64), offset)
    key = layer.folded.key_weight[own_keys].astype(np.float64)
    values = singular_values(query, key)
    if not values.any():
        return BilinearForm(np.nan, np.nan, np.nan, np.nan, 0.0)
    crossed = key.T @ query
    symmetry = np.sum(crossed * crossed.T) / np.sum(values**2)
    shares = values[values > 0] / values.sum()
    return BilinearForm(
        symmetric_share=(1 + symmetry) / 2,
        antisymmetric_share=(1 - symmetry) / 2,
        effective_rank=float(np.exp(-np.sum(shares * np.log(shares)))),
        participation_ratio=float(np.sum(values**2) ** 2 / np.sum(values**4)),
        spectral_norm=float(values[0]),
    )


def singular_values(
    query: Float[np.ndarray, "d_model d_head"], key: Float[np.ndarray, "d_model d_head"]
) -> Float[np.ndarray, "rank"]:
    """The singular values of query · keyᵀ, largest first."""
    upper_query, upper_key = (np.asarray(np.linalg.qr(factor, mode="r")) for factor in (query, key))
    return np.linalg.svd(upper_query @ upper_key.T, compute_uv=False)
