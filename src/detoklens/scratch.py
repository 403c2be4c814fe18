"""Temporary folders that are removed when their process ends, or by the next process if it was killed.

Each folder has a file lock, which the system releases when the process ends. A folder whose lock is free is abandoned.
Only folders of this user and this machine that contain such a lock are removed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "detoklens-"
LOCK = "held-by"


@contextmanager
def scratch_folder(within: Path | None = None) -> Iterator[Path]:
    """A new folder for this process, by default in the system's temporary folder."""
    place = Path(tempfile.gettempdir()) if within is None else within
    remove_abandoned(place)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
    try:
        with _held(folder):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_abandoned(place: Path) -> None:
    """Remove the folders that killed processes of this user left on this machine."""
    for folder in place.glob(f"{PREFIX}*"):
        with suppress(OSError):
            if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
                continue
            with (folder / LOCK).open("r+b") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if lock.read() == _machine():
                    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Rename the lock once it is held, so that no process finds it free before."""
    unnamed = folder / f".{LOCK}"
    with unnamed.open("wb") as lock:
        with suppress(OSError):  # a file system without locks: no other process can take it either
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        lock.write(_machine())
        lock.flush()
        unnamed.rename(folder / LOCK)
        yield


def _machine() -> bytes:
    return socket.gethostname().encode()
