"""Temporary folders that do not outlive their process: removed when it ends, or by the next one where it was killed.

Each folder is held by a lock that the system lets go of when the process ends, however it ends. A folder whose lock is
free was left behind. Only folders of this user and this machine are looked at, and only those that hold such a lock.
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
    """A new folder for this process alone, in the system's temporary one where no other is named."""
    place = Path(tempfile.gettempdir()) if within is None else within
    remove_abandoned(place)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
    try:
        with _held(folder):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_abandoned(place: Path) -> None:
    """Remove the folders that processes of this user on this machine left behind when they were killed."""
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
    """The lock gets its name once it is held: nobody can find it free before."""
    unnamed = folder / f".{LOCK}"
    with unnamed.open("wb") as lock:
        with suppress(OSError):  # a file system without locks: nobody else can take it either
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        lock.write(_machine())
        lock.flush()
        unnamed.rename(folder / LOCK)
        yield


def _machine() -> bytes:
    return socket.gethostname().encode()
