"""From scores to attention: masking, softcapping and softmax, and checks of scores."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from detoklens.errors import CheckpointError
from detoklens.weights.scale import FLOAT64_ADVICE

LARGEST_ROUNDING = 0.01
"""Largest accepted rounding error of a score: it changes attention by 1 %. In float32, scores reach it at 168,000."""


def check_finite_scores(what: str, scores: np.ndarray) -> np.ndarray:
    """Return the scores if all are finite; NaN and Inf mean that the weights are too large for their type."""
    if not np.isfinite(scores).all():
        raise CheckpointError(
            f"{what} is too large for {scores.dtype}: the weights are damaged or unusually large; check them"
            f"{FLOAT64_ADVICE}"
        )
    return scores


def check_rounding(scores: Float[np.ndarray, "..."], unit: float = 1.0) -> None:
    """Refuse scores (in multiples of `unit`) whose rounding errors would change attention."""
    largest = np.maximum(scores.max(initial=0), -scores.min(initial=0)) * unit
    if not largest * np.finfo(scores.dtype).epsneg <= LARGEST_ROUNDING:
        rounded = f"are as large as {largest:.0e}, which {scores.dtype} rounds too coarsely for a softmax"
        raise CheckpointError(
            f"attention scores {rounded if np.isfinite(largest) else f'overflow {scores.dtype}'}: "
            f"the weights are damaged or unusually large; check them{FLOAT64_ADVICE}"
        )


def softmax(scores: Float[np.ndarray, "*rows key"]) -> Float[np.ndarray, "*rows key"]:
    """Softmax along the last axis; a score of −inf gets no attention.

    Scores so large that rounding decides the attention are refused.
    """
    highest = scores.max(axis=-1, keepdims=True)
    check_rounding(highest)
    shifted = scores - highest
    np.exp(shifted, out=shifted)
    shifted /= shifted.sum(axis=-1, keepdims=True)
    return shifted


def softcapped(scores: Float[np.ndarray, "..."], cap: float | None) -> Float[np.ndarray, "..."]:
    """cap · tanh(score / cap) of scaled scores; unchanged without a cap."""
    if cap is None:
        return scores
    limit = scores.dtype.type(cap)
    return np.tanh(scores / limit) * limit


def seen_keys(query: int, n_keys: int, is_causal: bool = True, window: int | None = None) -> slice:
    """The keys that a query attends to in a text of `n_keys` tokens."""
    reach = n_keys if window is None else window
    return slice(max(0, query - reach + 1), query + 1 if is_causal else min(n_keys, query + reach))


def masked(
    scores: Float[np.ndarray, "head query key"], is_causal: bool = True, window: int | None = None
) -> Float[np.ndarray, "head query key"]:
    """The scores with −inf for keys that a query can't see: later ones, and ones outside its window."""
    n_queries, n_keys = scores.shape[-2:]
    offset = np.arange(n_queries)[:, None] - np.arange(n_keys)
    hidden = offset < 0 if is_causal else np.zeros(offset.shape, bool)
    if window is not None:
        hidden |= np.abs(offset) >= window
    return np.where(hidden, -np.inf, scores).astype(scores.dtype)
