"""Numbers that callers give: token ids, heads, positions, refused where they name nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Int

from detoklens.errors import RangeError, TokenError

Numbers = Sequence[int] | Int[np.ndarray, "..."]


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
