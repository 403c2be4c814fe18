"""From scores to attention: masking, softcapping and softmax, and checks of token ids and scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from detoklens.errors import CheckpointError, RangeError, TokenError
from detoklens.weights.scale import FLOAT64_ADVICE

Numbers = Sequence[int] | Int[np.ndarray, "..."]
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


def check_roundings(highest: np.ndarray) -> None:
    """Refuse scores so large that rounding decides the attention; `highest` holds the maximum of each row."""
    largest = np.abs(highest).max(initial=0)
    if not largest * np.finfo(highest.dtype).epsneg <= LARGEST_ROUNDING:
        raise CheckpointError(
            f"attention scores are as large as {largest:.0e}, which {highest.dtype} rounds too coarsely for a softmax: "
            f"the weights are damaged or unusually large; check them{FLOAT64_ADVICE}"
        )


def whole_numbers(token_ids: Any) -> Int[np.ndarray, "..."]:
    """Token ids as an array; anything but whole numbers is refused."""
    try:
        ids = np.asarray(token_ids)
    except ValueError as error:  # lists of different lengths
        raise TokenError("token ids must be one list of whole numbers, not lists of different lengths") from error
    if ids.size and ids.dtype.kind not in "iu":
        first = ids.ravel()[:1].tolist()[0]
        if type(first) is int:
            raise TokenError("a token id is too large for any vocabulary")
        raise TokenError(f"token ids must be whole numbers, not {type(first).__name__}; pass a list of ids, or a text")
    return ids.astype(np.int64)


def check_range(what: str, values: Numbers, size: int) -> None:
    """Refuse numbers outside 0 … size − 1."""
    wrong = [int(value) for value in values if not 0 <= value < size]
    if wrong:
        raise RangeError(f"{what} {wrong[0]} does not exist; {what}s go from 0 to {size - 1}")


def check_readable(ids: np.ndarray, longest: int, padding_id: int | None) -> None:
    """Refuse ids that are not a text the model can read: not one-dimensional, empty, too long, or with padding."""
    if ids.ndim != 1:
        raise RangeError(f"a text must be a string or one list of token ids, not an array of {ids.ndim} dimensions")
    if not ids.size:
        raise RangeError("a text needs at least one token; pass a text or a list of token ids")
    if len(ids) > longest:
        raise RangeError(f"a text of {len(ids)} tokens is longer than the {longest} positions; shorten it")
    if padding_id in ids:
        raise RangeError(f"token id {padding_id} is padding that takes no position; leave it out")


def softmax(scores: Float[np.ndarray, "*rows key"]) -> Float[np.ndarray, "*rows key"]:
    """Softmax along the last axis; a score of −inf gets no attention."""
    highest = scores.max(axis=-1, keepdims=True)
    check_roundings(highest)
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
    hidden = np.zeros(offset.shape, bool)
    if is_causal:
        hidden |= offset < 0
    if window is not None:
        hidden |= np.abs(offset) >= window
    return np.where(hidden, -np.inf, scores).astype(scores.dtype)
