"""The lines of a file, plain or compressed, a piece at a time: no more than one line and one chunk are in memory."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from detoklens.errors import CorpusError

CHUNK = 1 << 20
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class TruncatedInput(Exception):
    """A compressed file ends, or breaks, before its end."""


def read_chunks(path: str, compression: str | None, start: int = 0) -> Iterator[bytes]:
    """The uncompressed bytes from `start` on, in chunks; all that can be had of a compressed file that breaks off."""
    import pyarrow as pa

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
    """What a read that failed at `place` had uncompressed until then: byte by byte, nothing of it is lost."""
    import pyarrow as pa

    found = bytearray()
    with _open(path) as file, contextlib.suppress(TruncatedInput):
        stream = pa.CompressedInputStream(file, compression)
        while place > 0:
            place -= len(_read(stream, compression, min(CHUNK, place)))
        while byte := _read(stream, compression, 1):
            found += byte
    return bytes(found)


def _open(path: str) -> Any:
    import pyarrow as pa

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
    """The lines that begin in [start, stop), without their line ends; one longer than `longest` bytes is refused.

    Consecutive ranges share out all lines: a line belongs to the range in which its first byte lies.
    """
    place = max(0, start - 1)  # a newline just before `start` tells that a line begins there
    lines = _split(name, read_chunks(path, compression, place), longest)
    if start > 0:
        place += len(next(lines, b"")) + 1
    for line in lines:
        if stop is not None and place >= stop:
            return
        yield line.removeprefix(BYTE_ORDER_MARK) if place == 0 else line
        place += len(line) + 1


def _split(name: str, chunks: Iterator[bytes], longest: int) -> Iterator[bytes]:
    """Chunks cut at newlines; what follows the last one is a line too where it is not empty."""
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
    """Refuse a document that would not fit into the memory that is allowed."""
    if size > longest:
        raise CorpusError(
            f"{name}: holds a document of more than {longest >> 20} MB, more than the memory allows for one; split it "
            "(for .txt files set document_per_line=True), or count with more memory or fewer workers"
        )


def lines_before(path: str, place: int) -> int:
    """How many lines of an uncompressed file begin before this place?"""
    if place == 0:
        return 0
    lines, left = 1, place - 1  # a newline just before the place ends a line, and begins none before it
    with open(path, "rb") as file:
        while left > 0 and (chunk := file.read(min(CHUNK, left))):
            lines += chunk.count(b"\n")
            left -= len(chunk)
    return lines
