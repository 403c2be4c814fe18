"""From scores to attention: masking, softcapping and softmax, and checks of ids and scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


def id_lists(given: Any) -> list[Int[np.ndarray, "token"]]:
    """The token ids of each text: of a list, lists, an array or tensor, or of what a tokenizer returns.

    Tokens that the attention mask of a transformers tokenizer marks as padding are left out.
    """
    if hasattr(given, "ids"):  # a tokenizers.Encoding
        given = given.ids
    mask = None
    if isinstance(given, Mapping):
        if "input_ids" not in given:
            raise TokenError("this mapping has no input_ids; pass token ids, or a tokenizer's output")
        given, mask = given["input_ids"], given.get("attention_mask")
    texts = _rows(given)
    if any(ids.ndim != 1 for ids in texts):
        raise RangeError("token ids must be one list, or one list per text, not an array of more dimensions")
    if mask is None:
        return texts
    return [ids[kept.astype(bool)] for ids, kept in zip(texts, _rows(mask), strict=True)]


def _rows(given: Any) -> list[np.ndarray]:
    """A list or a one-dimensional array as one row, anything else as several."""
    if hasattr(given, "numpy"):  # a torch tensor on any device
        given = given.numpy(force=True)
    is_list = isinstance(given, Sequence) and len(given) > 0
    several = given.ndim > 1 if isinstance(given, np.ndarray) else is_list and hasattr(given[0], "__len__")
    return [whole_numbers(row) for row in given] if several else [whole_numbers(given)]


def check_range(what: str, values: Numbers, size: int) -> None:
    """Refuse numbers outside 0 … size − 1."""
    wrong = [int(value) for value in values if not 0 <= value < size]
    if wrong:
        raise RangeError(f"{what} {wrong[0]} does not exist; {what}s go from 0 to {size - 1}")


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
