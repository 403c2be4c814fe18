"""From scores to attention: softmax over the keys that a query may see."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from detoklens.scores.checks import check_roundings


def softmax(scores: Float[np.ndarray, "*rows key"]) -> Float[np.ndarray, "*rows key"]:
    """softmax along the last axis; −inf gets no attention."""
    highest = scores.max(axis=-1, keepdims=True)
    check_roundings(highest)
    shifted = scores - highest
    np.exp(shifted, out=shifted)
    shifted /= shifted.sum(axis=-1, keepdims=True)
    return shifted


def softcapped(scores: Float[np.ndarray, "..."], cap: float | None) -> Float[np.ndarray, "..."]:
    """cap · tanh(score / cap) of scaled scores; as they are where a model caps nothing."""
    if cap is None:
        return scores
    limit = scores.dtype.type(cap)
    return np.tanh(scores / limit) * limit


def seen_keys(query: int, n_keys: int, is_causal: bool = True, window: int | None = None) -> slice:
    """The keys that a query may look at, of a text of so many."""
    reach = n_keys if window is None else window
    return slice(max(0, query - reach + 1), query + 1 if is_causal else min(n_keys, query + reach))


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
