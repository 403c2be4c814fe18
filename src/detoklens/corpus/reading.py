"""Read texts from a piece of a file: the whole file, a range of bytes, or a range of row groups.

Texts are valid UTF-8: undecodable bytes and lone surrogates become U+FFFD, and the replacements are counted. Of a plain
or compressed file, at most one line and one chunk are in memory.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from detoklens.corpus.inputs import InputFile
from detoklens.corpus.parquet import ParquetFile
from detoklens.errors import CorpusError, CountsError

CHUNK = 1 << 20
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
REPLACEMENT = "\ufffd"
LONE_SURROGATE = re.compile("[\ud800-\udfff]")
LIKELY_FIELDS = ("text", "content", "raw_content", "body", "document", "article", "story", "sentence")
SHOWN_PROBLEMS = 3
"""Skipped records that a tally names; the others are only counted."""
ROWS = 64
"""Rows of a Parquet file decoded at once: about 300 kB of web pages. Fewer if they might not fit into memory."""


@dataclass(frozen=True)
class ReadingOptions:
    """How the records of a file are read."""

    text_field: str = "text"
    document_per_line: bool = False
    skip_bad: bool = False


@dataclass
class Tally:
    """How much was read, repaired and skipped; tallies of parts add up."""

    documents: int = 0
    documents_with_tokens: int = 0
    text_bytes: int = 0
    tokens: int = 0
    replaced_characters: int = 0
    documents_with_replacements: int = 0
    skipped_records: int = 0
    first_skipped: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)
        self.first_skipped = self.first_skipped[:SHOWN_PROBLEMS]

    @property
    def bigrams(self) -> int:
        """Number of adjacent pairs: one for each token except the first of its document."""
        return self.tokens - self.documents_with_tokens

    def check_sums(self, where: object, tokens: int, bigrams: int) -> None:
        """Refuse counts whose number of tokens or bigrams differs from what was read."""
        for kind, found, expected in (("tokens", tokens, self.tokens), ("bigrams", bigrams, self.bigrams)):
            if found != expected:
                raise CountsError(
                    f"{where}: counted {found} {kind}, expected {expected}; this part was discarded: run the same "
                    "command again, and if it happens again, please report a bug"
                )


def bad_record(problem: str, options: ReadingOptions, tally: Tally) -> None:
    """Raise an error that names an unusable record, or skip it."""
    if not options.skip_bad:
        advice = ", or" if "pass text_field=" in problem else "; fix it, or"
        raise CorpusError(f"{problem}{advice} skip such records with skip_bad=True")
    tally.add(Tally(skipped_records=1, first_skipped=[problem]))


def name_the_field(fields: Sequence[str]) -> str:
    """Advice for a corpus without the requested field: the text fields, the most likely first."""
    if not fields:
        return "none of them holds text; check the input"
    fields = sorted(fields, key=lambda field: field.lower() not in LIKELY_FIELDS)
    others = f" (text is also in {', '.join(fields[1:4])})" if len(fields) > 1 else ""
    return f"pass text_field={fields[0]!r}{others}"


def check_length(name: str, size: int, longest: int) -> None:
    """Refuse a document that would not fit into the allowed memory."""
    if size > longest:
        raise CorpusError(
            f"{name}: has a document of more than {longest >> 20} MB, too large for the memory limit; split it "
            "(for .txt files set document_per_line=True), or count with more memory or fewer workers"
        )


def longest_document(memory: int) -> int:
    """The largest document that fits into a worker's memory: with its copies and ids, it takes 8 times its size."""
    return memory // 16


@dataclass(frozen=True)
class Piece:
    """A part of a file that is read separately: bytes or row groups [start, stop), or the whole file."""

    file: InputFile
    start: int = 0
    stop: int | None = None
    limit: int | None = None

    def is_one_document(self, options: ReadingOptions) -> bool:
        return self.file.kind == ".txt" and not options.document_per_line


def where(piece: Piece, number: int, options: ReadingOptions) -> str:
    """Name a record, numbered from 1 in the piece, by its line or row in the file."""
    if piece.is_one_document(options):
        return piece.file.name
    unit = "row" if piece.file.kind == ".parquet" else "line"
    return f"{piece.file.name}, {unit} {_records_before(piece, options.text_field) + number}"


@lru_cache(maxsize=16)
def _records_before(piece: Piece, text_field: str) -> int:
    """Return the number of lines or rows before the piece."""
    if piece.file.kind == ".parquet" and piece.start > 0:
        return sum(rows for rows, _ in TextColumn(piece.file, text_field).row_groups()[: piece.start])
    return lines_before(piece.file.path, piece.start)


def read_texts(piece: Piece, options: ReadingOptions, tally: Tally, longest: int) -> Iterator[tuple[int, bytes]]:
    """Yield (number in the piece from 1, UTF-8 text) of each document; tally repaired and skipped records."""
    if piece.file.kind == ".parquet":
        records = _rows(piece, options, tally, longest)
    elif piece.is_one_document(options):
        records = _whole_file(piece, options, tally, longest)
    else:
        records = _lines(piece, options, tally, longest)
    for number, text in islice(records, piece.limit):
        if text is not None:
            tally.documents += 1
            tally.text_bytes += len(text)
            yield number, text


def count_records(piece: Piece, options: ReadingOptions, at_most: int) -> int:
    """Count the records of the piece, up to `at_most`, without parsing them."""
    if piece.file.kind == ".parquet":
        groups = TextColumn(piece.file, options.text_field).row_groups()
        return min(at_most, sum(rows for rows, _ in groups[piece.start : piece.stop]))
    if piece.is_one_document(options):
        return min(at_most, 1)
    lines = read_lines(piece.file.name, piece.file.path, piece.file.compression, piece.start, piece.stop, sys.maxsize)
    records = 0
    with contextlib.suppress(TruncatedInput):  # reported when the piece is read
        for _ in islice(filter(bytes.strip, lines), at_most):
            records += 1
    return records


def _rows(piece: Piece, options: ReadingOptions, tally: Tally, longest: int) -> Iterator[tuple[int, bytes | None]]:
    """Yield all records of a piece, None for a skipped one; so do the two functions below."""
    assert piece.stop is not None
    values = TextColumn(piece.file, options.text_field).values(piece.start, piece.stop, longest)
    for number, value in enumerate(values, 1):
        if value is None:
            bad_record(f"{where(piece, number, options)}: {options.text_field!r} is null", options, tally)
        yield number, None if value is None else _repair(value, tally)


def _whole_file(
    piece: Piece, options: ReadingOptions, tally: Tally, longest: int
) -> Iterator[tuple[int, bytes | None]]:
    chunks: list[bytes] = []
    length = 0
    try:
        for chunk in read_chunks(piece.file.path, piece.file.compression):
            chunks.append(chunk)
            length += len(chunk)
            check_length(piece.file.name, length, longest)
    except TruncatedInput as error:
        bad_record(f"{piece.file.name}: its compressed data breaks off ({error})", options, tally)
        yield 1, None
        return
    yield 1, _repair(b"".join(chunks).removeprefix(BYTE_ORDER_MARK), tally)


def _lines(piece: Piece, options: ReadingOptions, tally: Tally, longest: int) -> Iterator[tuple[int, bytes | None]]:
    number = 0
    lines = read_lines(piece.file.name, piece.file.path, piece.file.compression, piece.start, piece.stop, longest)
    try:
        for number, line in enumerate(lines, 1):
            if not line or line.isspace():
                continue
            if piece.file.kind == ".jsonl":
                text = _of_json(line, options, tally)
            else:
                text = _repair(line.removesuffix(b"\r"), tally)
            if isinstance(text, str):
                bad_record(f"{where(piece, number, options)}: {text}", options, tally)
            yield number, text if isinstance(text, bytes) else None
    except TruncatedInput as error:
        bad_record(f"{piece.file.name}: its compressed data breaks off after line {number} ({error})", options, tally)


def _of_json(line: bytes, options: ReadingOptions, tally: Tally) -> bytes | str:
    """Return the text field of a JSON line as bytes, or the problem with it as a string."""
    try:
        record = json.loads(_repair(line, tally).decode())
    except (ValueError, RecursionError) as error:
        return f"broken JSON ({error})"
    if not isinstance(record, dict):
        return f"no field {options.text_field!r} in a JSON {type(record).__name__}"
    if options.text_field not in record:
        fields = ", ".join(map(repr, list(record)[:8]))
        longest_first = sorted(record.items(), key=lambda item: -len(str(item[1])))
        texts = [name for name, value in longest_first if isinstance(value, str)]
        return f"no field {options.text_field!r}; it has {fields}: {name_the_field(texts)}"
    text = record[options.text_field]
    if not isinstance(text, str):
        return f"field {options.text_field!r} holds {type(text).__name__}, not text"
    try:
        return text.encode()
    except UnicodeEncodeError:  # lone surrogates, which JSON allows
        repaired, characters = LONE_SURROGATE.subn(REPLACEMENT, text)
        tally.add(Tally(replaced_characters=characters, documents_with_replacements=1))
        return repaired.encode()


def _repair(raw: bytes, tally: Tally) -> bytes:
    """Return valid UTF-8: each undecodable sequence becomes U+FFFD and is counted."""
    try:
        raw.decode()
    except UnicodeDecodeError:
        repaired = raw.decode(errors="replace").encode()
        characters = repaired.count(REPLACEMENT.encode()) - raw.count(REPLACEMENT.encode())
        tally.add(Tally(replaced_characters=characters, documents_with_replacements=1))
        return repaired
    return raw


class TruncatedInput(Exception):
    """A compressed file is truncated or damaged."""


def read_chunks(path: str, compression: str | None, start: int = 0) -> Iterator[bytes]:
    """Yield the uncompressed bytes from `start` on, in chunks; of a truncated file, everything readable."""
    length = 0
    with _open(path) as file:
        file.seek(start)
        stream = pa.CompressedInputStream(file, compression) if compression else file
        try:
            while chunk := stream.read(CHUNK):
                length += len(chunk)
                yield chunk
        except OSError as error:
            if compression is None:
                raise
            yield _lost_chunk(path, compression, length)
            raise TruncatedInput(str(error)) from error


def _lost_chunk(path: str, compression: str, place: int) -> bytes:
    """Return what the failed read at `place` had decompressed, by reading again byte by byte."""
    lost = bytearray()
    with _open(path) as file, contextlib.suppress(OSError):
        stream = pa.CompressedInputStream(file, compression)
        while place > 0:
            place -= len(stream.read(min(CHUNK, place)))
        while byte := stream.read(1):
            lost += byte
    return bytes(lost)


def _open(path: str) -> Any:
    try:
        return pa.OSFile(os.fsencode(path))
    except OSError as error:
        raise CorpusError(
            f"{path}: can no longer be read ({error}); it was moved or truncated during the run"
        ) from error


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


class TextColumn(ParquetFile):
    """A column of texts."""

    def __init__(self, file: InputFile, column: str) -> None:
        super().__init__(file.name, file.path)
        self.column = column
        texts = [field.name for field in self.schema if _holds_text(field.type)]
        if column not in self.schema.names:
            columns = ", ".join(self.schema.names)
            raise CorpusError(f"{file.name}: no column {column!r}; it has {columns}; {name_the_field(texts)}")
        kind = self.schema.field(column).type
        if not _holds_text(kind):
            raise CorpusError(f"{file.name}: column {column!r} holds {kind}, not text; {name_the_field(texts)}")

    def row_groups(self) -> list[tuple[int, int]]:
        """(rows, bytes of text before compression) of each row group."""
        return self.sizes([self.column])

    def values(self, start: int, stop: int, longest: int) -> Iterator[bytes | None]:
        """The texts of row groups [start, stop) as raw bytes; None where a row has none.

        Pages and values larger than `longest` are refused before they are copied.
        """
        for batch in self.batches([self.column], range(start, stop), longest, ROWS):
            with self._damage_reported():
                texts = batch.column(0).cast(pa.large_binary())
                check_length(self.name, pc.max(pc.binary_length(texts)).as_py() or 0, longest)
            yield from (text.as_py() for text in texts)


def _holds_text(kind: pa.DataType) -> bool:
    value = kind.value_type if types.is_dictionary(kind) else kind
    return value in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
