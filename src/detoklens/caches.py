"""Where is what outlives a run and can be made again? In a folder of the user's caches, as far as there is one."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "DETOKLENS_CACHE"
"""Names another folder; empty, nothing is kept at all."""


def keeps_nothing() -> bool:
    """Whether that was asked for."""
    return os.environ.get(VARIABLE) == ""


def cache_folder(name: str) -> Path | None:
    """The folder of one kind of things that are kept, which need not be there yet; None where nothing can be kept."""
    named = os.environ.get(VARIABLE)
    if named is not None:
        return Path(named) / name if named else None
    try:
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # a user without a home
        return None
    return caches / "detoklens" / name
