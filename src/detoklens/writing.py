"""Files and folders on disk: written whole or not at all, temporary folders, and the cache.

A file is written under a temporary name in its own folder, flushed to the disk and renamed, never through a link. What
the system refuses is one line.

Temporary files and folders are locked while they are used. The system releases the lock when the process ends, so one
whose lock is free was left by a process that was killed, and the next process removes it.

Other users may be able to write to the cache folder, so only regular files of this user that no one else may write to
are read from it. Links are not followed and nothing waits for a pipe.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import BinaryIO

from detoklens.errors import OutputError

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, None})
"""How the system reports a full disk; numpy reports it as an error without a number."""
FREE_SPACE = "free some space, or choose a folder that can be written to"
PARTIAL = ".partial"
ANYONE, OWNER = 0o666, 0o600
"""Permissions of a new file before the umask: of an output, and of a file that only this user may read."""


def make_folder(folder: Path) -> None:
    """Make the folder and its parents where they are missing."""
    with plain_output_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)


def refuse_links(folder: Path) -> None:
    """Refuse an output folder with a link anywhere inside it; the folder itself may be reached through one."""
    with plain_output_errors(folder):
        for parent, folders, files in os.walk(folder):
            for name in (*folders, *files):
                refuse_link(Path(parent, name))


def refuse_link(path: Path) -> None:
    """Refuse to write through a link: what it points to may belong to something else."""
    if path.is_symlink():
        raise OutputError(
            f"{path} is a link, and nothing is written through links; remove it, or choose another folder"
        )


def write_whole(path: Path, content: bytes | memoryview, when_full: str = FREE_SPACE) -> None:
    """Write one file; an interruption leaves the old one, or none."""
    with whole_files(path, when_full=when_full) as (partial,):
        partial.write_bytes(content)


@contextmanager
def whole_files(*paths: Path, mode: int = ANYONE, when_full: str = FREE_SPACE) -> Iterator[list[Path]]:
    """Yield a temporary file to write for each path; all are renamed at the end, none after an error.

    `when_full` says what to do when the disk is full.
    """
    with plain_output_errors(paths[0], when_full), ExitStack() as files:
        partial_paths = [files.enter_context(_partial_file(path, mode)) for path in paths]
        yield partial_paths
        for partial in partial_paths:  # to the disk: after a crash no renamed file is empty
            descriptor = os.open(partial, os.O_RDWR | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        for partial, path in zip(partial_paths, paths, strict=True):
            partial.replace(path)


@contextmanager
def plain_output_errors(place: Path, when_full: str = FREE_SPACE) -> Iterator[None]:
    """Turn an error of the system (disk full, read-only, no permission) into an OutputError."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else f"the disk takes no more ({error})"
        remedy = when_full if error.errno in FULL else "choose a folder that can be written to"
        raise OutputError(f"{place}: {reason}; {remedy}") from error


@contextmanager
def _partial_file(path: Path, mode: int) -> Iterator[Path]:
    """An empty, locked file next to `path`, removed at the end unless it was renamed."""
    remove_leftovers(path.parent, escape(path.name))
    while True:
        partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}{PARTIAL}")
        descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        if _is_held(descriptor, partial):
            break
        os.close(descriptor)  # another process took it for a leftover before it was locked
    try:
        yield partial
    finally:
        os.close(descriptor)
        if partial.exists():
            partial.unlink(missing_ok=True)


def _is_held(descriptor: int, partial: Path) -> bool:
    """Lock a new file; False if another process has removed it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks, where no process removes leftovers
        return True
    return partial.exists()


def remove_leftovers(folder: Path, pattern: str) -> None:
    """Remove the temporary files that killed processes left of files whose names match a pattern."""
    for partial in folder.glob(f".{pattern}.*{PARTIAL}"):
        with suppress(OSError):
            descriptor = os.open(partial, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                partial.unlink()
            finally:
                os.close(descriptor)


PREFIX, LOCK = "detoklens-", "held-by"
"""How the name of a temporary folder begins, and the name of the file in it that is locked."""


@contextmanager
def scratch_folder(within: Path | None = None) -> Iterator[Path]:
    """A new folder for this process, by default in the system's temporary folder."""
    place = Path(tempfile.gettempdir()) if within is None else within
    remove_abandoned(place)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
    unnamed = folder / f".{LOCK}"
    try:
        with unnamed.open("wb") as lock:
            with suppress(OSError):  # a file system without locks: no other process can take it either
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            lock.write(_machine())
            lock.flush()
            unnamed.rename(folder / LOCK)  # not before it is held: another process would find it free
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_abandoned(place: Path) -> None:
    """Remove the folders, with a lock of ours, that killed processes of this user left on this machine."""
    for folder in place.glob(f"{PREFIX}*"):
        with suppress(OSError):
            if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
                continue
            with (folder / LOCK).open("r+b") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if lock.read() == _machine():
                    shutil.rmtree(folder, ignore_errors=True)


def _machine() -> bytes:
    return socket.gethostname().encode()


CACHE_VARIABLE = "DETOKLENS_CACHE"
"""Another cache folder; empty to turn caching off."""


def keeps_nothing() -> bool:
    """Whether the user has turned off caching."""
    return os.environ.get(CACHE_VARIABLE) == ""


def cache_folder(name: str) -> Path | None:
    """The folder for one kind of files, which may not exist yet; None without a cache."""
    named = os.environ.get(CACHE_VARIABLE)
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
