"""How files are written: whole or not at all, and what the system says against it is one line."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from detoklens.errors import OutputError

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, None})
"""How the system says that a disk takes no more; numpy tells it by the number of items that were taken."""


def make_folder(folder: Path) -> None:
    """The folder and those above it, where they are not there yet."""
    with plain_output_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)


def write_whole(path: Path, content: bytes | memoryview) -> None:
    """Write one file; whatever interrupts leaves the old one, or none."""
    with whole_files(path) as (partial,):
        partial.write_bytes(content)


@contextmanager
def whole_files(*paths: Path) -> Iterator[list[Path]]:
    """Temporary names to write to: in the end all get their own names, after an error none."""
    partial_paths = [path.with_name(f".{path.name}.{threading.get_native_id()}.partial") for path in paths]
    with plain_output_errors(paths[0]):
        try:
            yield partial_paths
            for partial, path in zip(partial_paths, paths, strict=True):
                partial.replace(path)
        finally:
            for partial in partial_paths:
                partial.unlink(missing_ok=True)


@contextmanager
def plain_output_errors(place: Path) -> Iterator[None]:
    """An OutputError for what the system says against writing at a place: full, read-only, forbidden."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or f"the disk takes no more ({error})"
        where = "free some space, or name a folder" if error.errno in FULL else "name a folder"
        raise OutputError(f"{place}: {reason}; {where} that can be written to") from error
