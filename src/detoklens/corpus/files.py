"""Atomic file writes: under a temporary name, then renamed."""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

from detoklens.errors import OutputError

TEMPORARY = ".part-"


@contextlib.contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Yield a temporary path that replaces `path` when the block succeeds and is removed when it fails."""
    temporary = temporary_beside(path)
    try:
        with full_disk_told(path):
            yield temporary
            _to_disk(temporary)
            os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def temporary_beside(path: Path) -> Path:
    """Return a name in the same folder that no other process uses."""
    return path.with_name(f"{path.name}{TEMPORARY}{uuid.uuid4().hex}")


@contextlib.contextmanager
def full_disk_told(path: Path) -> Iterator[None]:
    """Report a full disk, a quota or a file size limit in one line."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise OutputError(
            f"{path.parent}: no room left to write {path.name} ({os.strerror(error.errno)}); finished parts are kept: "
            "make room and run the same command again to continue"
        ) from error


def _to_disk(path: Path) -> None:
    """Flush a file to disk, so that a crash can't leave a renamed but empty file."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
