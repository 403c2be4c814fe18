"""The cache folder: files that outlive a run and can be made again.

Other users may be able to write to the folder, so only regular files of this user that no one else may write to are
read. Links are not followed and nothing waits for a pipe.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

VARIABLE = "DETOKLENS_CACHE"
"""Another cache folder; empty to turn caching off."""


def keeps_nothing() -> bool:
    """Whether the user turned caching off."""
    return os.environ.get(VARIABLE) == ""


def cache_folder(name: str) -> Path | None:
    """The folder for one kind of files, which may not exist yet; None without a cache."""
    named = os.environ.get(VARIABLE)
    if named is not None:
        return Path(named) / name if named else None
    try:
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # a user without a home
        return None
    return caches / "detoklens" / name


def make_cache_folder(folder: Path) -> None:
    """Make a cache folder that only this user can read and write; one that exists is left as it is."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=stat.S_IRWXU, exist_ok=True)


def open_cached(path: Path, flags: int = os.O_RDONLY) -> BinaryIO:
    """Open a cached file; a PermissionError unless it is a regular file that only this user may write."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, stat.S_IRUSR | stat.S_IWUSR)
    found = os.fstat(descriptor)
    shared = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or shared:
        os.close(descriptor)
        raise PermissionError(None, "it is not a regular file that belongs to this user alone", str(path))
    return os.fdopen(descriptor, "rb")
