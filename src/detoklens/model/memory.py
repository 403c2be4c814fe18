"""Is there room for it? Asked before anything is computed."""

from __future__ import annotations

from detoklens.errors import RangeError
from detoklens.wording import percent

SHARE = 0.75  # of the machine's memory


def refuse_too_large(needed: int, what: str, remedy: str) -> None:
    """An error where so many bytes are more than most of this machine's memory."""
    from detoklens.corpus.memory import machine_memory

    there = machine_memory()
    if needed > SHARE * there:
        raise RangeError(
            f"{what} need {needed / 1e9:.1f} GB, more than {percent(SHARE)} of this machine's {there / 1e9:.1f} GB; "
            f"{remedy}"
        )
