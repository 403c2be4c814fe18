"""How far above the rest does the identical token stand? The z-score of Tᵉᵉ[i, i] within row i of all keys.

    z_i = (T[i, i] − mean_j T[i, j]) / std_j T[i, j]

No row of Tᵉᵉ is built: the mean of row i is q_i · mean(k), its variance q_i Cov(k) q_iᵀ, a d' × d' matrix per head.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from detoklens.scores.affinity import Affinity


def self_match_scores(affinity: Affinity) -> Float[np.ndarray, "head token"]:
    """z_i of every token in every head; NaN where all keys of the row have the same score."""
    return np.stack([_head_scores(query, key) for query, key in affinity.heads()])


def _head_scores(
    query: Float[np.ndarray, "token d_head"], key: Float[np.ndarray, "token d_head"]
) -> Float[np.ndarray, "token"]:
    queries, keys = query.astype(np.float64), key.astype(np.float64)
    keys -= keys.mean(axis=0)
    covariance = keys.T @ keys / len(keys)
    above_mean = np.einsum("td,td->t", queries, keys)
    variance = np.einsum("td,td->t", queries @ covariance, queries)
    return np.divide(above_mean, np.sqrt(variance), out=np.full(len(keys), np.nan), where=variance > 0)
