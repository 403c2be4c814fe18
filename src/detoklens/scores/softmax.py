"""From scores to attention: softmax over the keys that a query may see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from detoklens.errors import CheckpointError, RangeError, TokenError

Numbers = Sequence[int] | Int[np.ndarray, "..."]
LARGEST_ROUNDING = 0.01
"""Of a score before the softmax: it changes attention by one percent. In float32 scores of 168,000 are rounded so."""


def check_finite_scores(what: str, scores: np.ndarray) -> np.ndarray:
    """The same scores, if all are finite; NaN and Inf come of weights too large for their type."""
    if not np.isfinite(scores).all():
        raise CheckpointError(
            f"{what} is too large for {scores.dtype}: the weights are damaged or of an unusual scale; try "
            'dtype="float64"'
        )
    return scores


def check_roundings(highest: np.ndarray) -> None:
    """Refuse scores so large that their own rounding decides the attention; `highest` has the highest of each row."""
    largest = np.abs(highest).max(initial=0)
    if not largest * np.finfo(highest.dtype).epsneg <= LARGEST_ROUNDING:
        raise CheckpointError(
            f"attention scores are as large as {largest:.0e}, which {highest.dtype} rounds too coarsely for a softmax: "
            'the weights are damaged or of an unusual scale; try dtype="float64"'
        )


def whole_numbers(token_ids: Any) -> Int[np.ndarray, "..."]:
    """Token ids as an array; text and fractions are refused rather than rounded."""
    try:
        ids = np.asarray(token_ids)
    except ValueError as error:  # lists of different lengths
        raise TokenError("token ids are whole numbers, not lists of several lengths; give one list") from error
    if ids.size and ids.dtype.kind not in "iu":
        first = ids.ravel()[:1].tolist()[0]
        if type(first) is int:
            raise TokenError("token ids are smaller: one of these names no token of any vocabulary")
        raise TokenError(f"token ids are whole numbers, not {type(first).__name__}; give a list of them, or a text")
    return ids.astype(np.int64)


def check_range(what: str, values: Numbers, size: int) -> None:
    """Refuse numbers that name nothing: below 0, or not below the size."""
    wrong = [int(value) for value in values if not 0 <= value < size]
    if wrong:
        raise RangeError(f"{what} {wrong[0]} does not exist; {what}s go from 0 to {size - 1}")


def check_readable(ids: np.ndarray, longest: int, placeless: int | None) -> None:
    """Refuse ids that are no text for a model: of another shape, none, too many, or with padding."""
    if ids.ndim != 1:
        raise RangeError(f"a text is a string, or one list of token ids, not an array of {ids.ndim} dimensions")
    if not ids.size:
        raise RangeError("a text needs at least one token; give a text, or a list of token ids")
    if len(ids) > longest:
        raise RangeError(f"a text of {len(ids)} tokens is longer than the {longest} positions; shorten it")
    if placeless in ids:
        raise RangeError(f"token id {placeless} is padding that takes no position; leave it out")


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
