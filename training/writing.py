"""Atomic files, and a lock that allows one writer per folder."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from failure import RecipeError


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path; rename it to `path` on success, delete it otherwise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".part")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Keep a second process from training the same run; the lock is released when the process ends."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RecipeError(f"{folder} is being trained by another process; wait for it or stop it") from None
        yield
