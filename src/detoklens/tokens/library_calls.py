"""Calls of the tokenizing libraries, which are written in Rust: whatever they raise becomes one line.

A panic is no `Exception`, and it also writes to descriptor 2 by itself: three lines, or a hundred where RUST_BACKTRACE
is set. So that descriptor is held back during a call. What others wrote there meanwhile follows right after it.
"""

from __future__ import annotations

import os
import re
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache

from detoklens.errors import DetokLensError, first_line

STDERR = 2
PANIC = re.compile(rb"\n?thread '[^\n]*' [^\n]*panicked at .*", re.DOTALL)
"""A panic and all that follows: it is the last thing that a call writes, and its length is not told."""


@contextmanager
def library_call(refusal: Callable[[str], DetokLensError]) -> Iterator[None]:
    """Raise what `refusal` makes of the library's reason, for any failure of a tokenizing library inside."""
    try:
        with _held_stderr:
            yield
    except (DetokLensError, OSError, MemoryError):
        raise
    except BaseException as error:
        if isinstance(error, Exception) or _is_panic(error):
            raise refusal(first_line(error)) from error
        raise


class _HeldStderr:
    """Descriptor 2 as a file in memory, from the first thread that enters until the last one leaves."""

    def __init__(self) -> None:
        self._lock, self._inside = threading.Lock(), 0
        self._own: int | None = None

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                try:
                    self._own = os.dup(STDERR)
                except OSError:  # closed: nobody would hear a panic
                    self._own = None
                else:
                    os.dup2(_unnamed_file(os.getpid()), STDERR)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0 and self._own is not None:
                written = _taken_out(_unnamed_file(os.getpid()))
                os.dup2(self._own, STDERR)
                os.close(self._own)
                _write_all(PANIC.sub(b"", written))


_held_stderr = _HeldStderr()


@lru_cache(maxsize=1)
def _unnamed_file(_process: int) -> int:
    """One file for each process: those that were forked must not share a place in it."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("stderr")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _taken_out(file: int) -> bytes:
    """What was written, of which the file keeps nothing."""
    size = os.lseek(file, 0, os.SEEK_CUR)
    if not size:
        return b""
    content = os.pread(file, size, 0)
    os.lseek(file, 0, os.SEEK_SET)
    return content


def _write_all(content: bytes) -> None:
    while content:
        content = content[os.write(STDERR, content) :]


def _is_panic(error: BaseException) -> bool:
    """Each library brings a class of its own for its panics, which can't be imported: it is known by its name."""
    return type(error).__name__ == "PanicException"
