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
