"""Does a head prefer the same keys whatever the query? The share of Tᵉᵉ's variance along the keys that is common.

Softmax sees differences along the keys only. With T̂[j] = mean_i T[i, j], the key's mean over all queries,

    share = Var_j T̂[j] / mean_i Var_j T[i, j]

is 1 where all rows are the same up to a constant, and about 0 where each query has keys of its own. Nothing of size
V × V is built: with q̄ the mean query, S its second moments and C the keys' covariance, it is q̄ C q̄ᵀ / tr(S C).
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from detoklens.scores.affinity import Affinity


def same_keys_shares(affinity: Affinity) -> Float[np.ndarray, "head"]:
    """The share of every head; NaN where all keys have the same score."""
    return np.array([_share(query, key) for query, key in affinity.heads()])


def _share(query: Float[np.ndarray, "token d_head"], key: Float[np.ndarray, "token d_head"]) -> float:
    queries, keys = query.astype(np.float64), key.astype(np.float64)
    keys -= keys.mean(axis=0)
    covariance = keys.T @ keys / len(keys)
    mean, moments = queries.mean(axis=0), queries.T @ queries / len(queries)
    whole = float(np.einsum("de,de->", moments, covariance))
    return float(mean @ covariance @ mean) / whole if whole > 0 else np.nan
