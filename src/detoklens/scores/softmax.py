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


def masked(
    scores: Float[np.ndarray, "head query key"], is_causal: bool = True, window: int | None = None
) -> Float[np.ndarray, "head query key"]:
    """The same scores with −inf where a query may not look: at later keys, at keys beyond its window."""
    n_queries, n_keys = scores.shape[-2:]
    offset = np.arange(n_queries)[:, None] - np.arange(n_keys)
    hidden = np.zeros(offset.shape, bool)
    if is_causal:
        hidden |= offset < 0
    if window is not None:
        hidden |= np.abs(offset) >= window
    return np.where(hidden, -np.inf, scores).astype(scores.dtype)
