"""Token ids, heads and positions as callers pass them: as arrays, and within the model's range."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Int

from detoklens.errors import RangeError, TokenError

Numbers = Sequence[int] | Int[np.ndarray, "..."]


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
