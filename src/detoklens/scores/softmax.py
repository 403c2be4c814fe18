"""From scores to attention: softmax over the keys that a query may see."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float


def softmax(scores: Float[np.ndarray, "*rows key"]) -> Float[np.ndarray, "*rows key"]:
    """softmax along the last axis; −inf gets no attention."""
    shifted = scores - scores.max(axis=-1, keepdims=True)
    np.exp(shifted, out=shifted)
    shifted /= shifted.sum(axis=-1, keepdims=True)
    return shifted


def causal(scores: Float[np.ndarray, "head query key"]) -> Float[np.ndarray, "head query key"]:
    """The same scores with −inf where the key comes after the query."""
    n_queries, n_keys = scores.shape[-2:]
    later = np.arange(n_keys) > np.arange(n_queries)[:, None]
    return np.where(later, -np.inf, scores).astype(scores.dtype)
