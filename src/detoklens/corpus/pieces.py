"""The texts of a piece of a file: the whole file, a range of bytes, or a range of row groups.

Texts are valid UTF-8: undecodable bytes and lone surrogates become U+FFFD, and the replacements are counted.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

from detoklens.corpus.lines import (
    BYTE_ORDER_MARK,
    TruncatedInput,
    check_length,
    lines_before,
    read_chunks,
    read_lines,
)
from detoklens.corpus.parquet import read_column, row_group_sizes
from detoklens.corpus.records import ReadingOptions, Tally, bad_record

REPLACEMENT = "\ufffd"
LONE_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Piece:
    """A part of a file that is read separately: bytes or row groups [start, stop), or the whole file."""

    name: str
    path: str
    kind: str
    compression: str | None = None
    start: int = 0
    stop: int | None = None
    limit: int | None = None

    def is_one_document(self, options: ReadingOptions) -> bool:
        return self.kind == ".txt" and not options.document_per_line


def where(piece: Piece, number: int, options: ReadingOptions) -> str:
    """Name a record, numbered from 1 in the piece, by its line or row in the file."""
    if piece.is_one_document(options):
        return piece.name
    unit = "row" if piece.kind == ".parquet" else "line"
    return f"{piece.name}, {unit} {_records_before(piece, options.text_field) + number}"


@lru_cache(maxsize=16)
def _records_before(piece: Piece, text_field: str) -> int:
    """Return the number of lines or rows before the piece."""
    if piece.start == 0:
        return 0
    if piece.kind == ".parquet":
        return sum(rows for rows, _ in row_group_sizes(piece.name, piece.path, text_field)[: piece.start])
    return lines_before(piece.path, piece.start)


def read_texts(piece: Piece, options: ReadingOptions, tally: Tally, longest: int) -> Iterator[tuple[int, bytes]]:
    """Yield (number in the piece from 1, UTF-8 text) of each document; tally repaired and skipped records."""
    for number, text in islice(_records(piece, options, tally, longest), piece.limit):
        if text is not None:
            tally.documents += 1
            tally.text_bytes += len(text)
            yield number, text


def count_records(piece: Piece, options: ReadingOptions, at_most: int) -> int:
    """Count the records of the piece, up to `at_most`, without parsing them."""
    if piece.kind == ".parquet":
        groups = row_group_sizes(piece.name, piece.path, options.text_field)[piece.start : piece.stop]
        return min(at_most, sum(rows for rows, _ in groups))
    if piece.is_one_document(options):
        return min(at_most, 1)
    lines = read_lines(piece.name, piece.path, piece.compression, piece.start, piece.stop, sys.maxsize)
    records = 0
    with contextlib.suppress(TruncatedInput):  # reported when the piece is read
        for _ in islice((line for line in lines if line and not line.isspace()), at_most):
            records += 1
    return records


def _records(piece: Piece, options: ReadingOptions, tally: Tally, longest: int) -> Iterator[tuple[int, bytes | None]]:
    """Return all records of the piece, None for a skipped one."""
    if piece.kind == ".parquet":
        return _rows(piece, options, tally, longest)
    if piece.is_one_document(options):
        return _whole_file(piece, options, tally, longest)
    return _lines(piece, options, tally, longest)


def _rows(piece: Piece, options: ReadingOptions, tally: Tally, longest: int) -> Iterator[tuple[int, bytes | None]]:
    assert piece.stop is not None
    values = read_column(piece.name, piece.path, options.text_field, piece.start, piece.stop, longest)
    for number, value in enumerate(values, 1):
        if value is None:
            bad_record(f"{where(piece, number, options)}: {options.text_field!r} is null", options, tally)
            yield number, None
            continue
        yield number, _repair(value, tally)


def _whole_file(
    piece: Piece, options: ReadingOptions, tally: Tally, longest: int
) -> Iterator[tuple[int, bytes | None]]:
    chunks: list[bytes] = []
    length = 0
    try:
        for chunk in read_chunks(piece.path, piece.compression):
            chunks.append(chunk)
            length += len(chunk)
            check_length(piece.name, length, longest)
    except TruncatedInput as error:
        bad_record(f"{piece.name}: its compressed data breaks off ({error})", options, tally)
        yield 1, None
        return
    yield 1, _repair(b"".join(chunks).removeprefix(BYTE_ORDER_MARK), tally)


def _lines(piece: Piece, options: ReadingOptions, tally: Tally, longest: int) -> Iterator[tuple[int, bytes | None]]:
    number = 0
    lines = read_lines(piece.name, piece.path, piece.compression, piece.start, piece.stop, longest)
    try:
        for number, line in enumerate(lines, 1):
            if not line or line.isspace():
                continue
            text = _of_json(line, options, tally) if piece.kind == ".jsonl" else _of_line(line, tally)
            if isinstance(text, str):
                bad_record(f"{where(piece, number, options)}: {text}", options, tally)
            yield number, text if isinstance(text, bytes) else None
    except TruncatedInput as error:
        bad_record(f"{piece.name}: its compressed data breaks off after line {number} ({error})", options, tally)


def _of_line(line: bytes, tally: Tally) -> bytes:
    return _repair(line.removesuffix(b"\r"), tally)


def _of_json(line: bytes, options: ReadingOptions, tally: Tally) -> bytes | str:
    """Return the text field of a JSON line as bytes, or the problem with it as a string."""
    try:
        record = json.loads(_decode(line, tally))
    except (ValueError, RecursionError) as error:
        return f"broken JSON ({error})"
    if not isinstance(record, dict) or options.text_field not in record:
        return f"no field {options.text_field!r}" + _fields(record)
    text = record[options.text_field]
    if not isinstance(text, str):
        return f"field {options.text_field!r} holds {type(text).__name__}, not text"
    return _encode(text, tally)


def _fields(record: object) -> str:
    if not isinstance(record, dict):
        return f" in a JSON {type(record).__name__}"
    return f"; it has {', '.join(map(repr, list(record)[:8]))}"


def _repair(raw: bytes, tally: Tally) -> bytes:
    """Return valid UTF-8: each undecodable sequence becomes U+FFFD and is counted."""
    try:
        raw.decode()
    except UnicodeDecodeError:
        return _decode(raw, tally).encode()
    return raw


def _decode(raw: bytes, tally: Tally) -> str:
    """Return the text of the bytes, repaired in the same way."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        repaired = raw.decode(errors="replace")
        tally.replaced(repaired.count(REPLACEMENT) - raw.count(REPLACEMENT.encode()))
        return repaired


def _encode(text: str, tally: Tally) -> bytes:
    """Return the text as UTF-8: each lone surrogate, which JSON allows, becomes U+FFFD and is counted."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        repaired, characters = LONE_SURROGATE.subn(REPLACEMENT, text)
        tally.replaced(characters)
        return repaired.encode()
