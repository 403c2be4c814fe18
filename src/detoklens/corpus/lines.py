"""The lines of a plain or compressed file, with at most one line and one chunk in memory."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from detoklens.errors import CorpusError

CHUNK = 1 << 20
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class TruncatedInput(Exception):
    """A compressed file is truncated or damaged."""


def read_chunks(path: str, compression: str | None, start: int = 0) -> Iterator[bytes]:
    """Yield the uncompressed bytes from `start` on, in chunks; of a truncated file, everything readable."""
    length = 0
    with _open(path) as file:
        file.seek(start)
        stream = pa.CompressedInputStream(file, compression) if compression else file
        try:
            while chunk := _read(stream, compression, CHUNK):
                length += len(chunk)
                yield chunk
        except TruncatedInput:
            yield _lost_chunk(path, compression, length)
            raise


def _lost_chunk(path: str, compression: str | None, place: int) -> bytes:
    """Return what the failed read at `place` had uncompressed so far, by reading it again byte by byte."""
    found = bytearray()
    with _open(path) as file, contextlib.suppress(TruncatedInput):
        stream = pa.CompressedInputStream(file, compression)
        while place > 0:
            place -= len(_read(stream, compression, min(CHUNK, place)))
        while byte := _read(stream, compression, 1):
            found += byte
    return bytes(found)


def _open(path: str) -> Any:
    try:
        return pa.OSFile(os.fsencode(path))
    except OSError as error:
        raise CorpusError(f"{path}: can't be read any more ({error}); has it been moved?") from error


def _read(stream: Any, compression: str | None, size: int) -> bytes:
    try:
        chunk: bytes = stream.read(size)
    except OSError as error:
        if compression is None:
            raise
        raise TruncatedInput(str(error)) from error
    return chunk


def read_lines(
    name: str, path: str, compression: str | None, start: int, stop: int | None, longest: int
) -> Iterator[bytes]:
    """Yield the lines that start in [start, stop), without line ends; refuse one longer than `longest` bytes.

    A line belongs to the range that holds its first byte, so consecutive ranges together yield every line once.
    """
    place = max(0, start - 1)  # a newline just before `start` means that a line starts there
    lines = _split(name, read_chunks(path, compression, place), longest)
    if start > 0:
        place += len(next(lines, b"")) + 1
    for line in lines:
        if stop is not None and place >= stop:
            return
        yield line.removeprefix(BYTE_ORDER_MARK) if place == 0 else line
        place += len(line) + 1


def _split(name: str, chunks: Iterator[bytes], longest: int) -> Iterator[bytes]:
    """Split chunks at newlines; a non-empty rest after the last newline is a line too."""
    begun: list[bytes] = []
    length = 0
    for chunk in chunks:
        first, *others = chunk.split(b"\n")
        begun.append(first)
        length += len(first)
        check_length(name, length, longest)
        if others:
            yield b"".join(begun)
            yield from others[:-1]
            begun, length = [others[-1]], len(others[-1])
    if length:
        yield b"".join(begun)


def check_length(name: str, size: int, longest: int) -> None:
    """Refuse a document that would not fit into the allowed memory."""
    if size > longest:
        raise CorpusError(
            f"{name}: holds a document of more than {longest >> 20} MB, more than the memory allows for one; split it "
            "(for .txt files set document_per_line=True), or count with more memory or fewer workers"
        )


def lines_before(path: str, place: int) -> int:
    """Return the number of lines of an uncompressed file that start before `place`."""
    if place == 0:
        return 0
    lines, left = 1, place - 1  # a newline just before `place` ends a line and starts none before it
    with open(path, "rb") as file:
        while left > 0 and (chunk := file.read(min(CHUNK, left))):
            lines += chunk.count(b"\n")
            left -= len(chunk)
    return lines
