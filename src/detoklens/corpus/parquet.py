"""The text column of a Parquet file, a few rows at a time."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as types

from detoklens.corpus.lines import check_length
from detoklens.errors import CorpusError, first_line

UNCOMPRESSED_SIZE, COMPRESSED_SIZE = 2, 3  # the numbers of these fields in a page's header
STOP, NO_CONTENT, ONE_BYTE, NUMBERS, EIGHT_BYTES, BYTES, STRUCT = 0, (1, 2), 3, (4, 5, 6), 7, 8, 12
DEEPEST = 8
"""Maximum nesting of structs; a header has two levels."""


class BrokenHeader(Exception):
    """Bytes that are not a page header."""


def largest_page(path: str, column: Any) -> int:
    """The uncompressed size of the largest page of a column chunk."""
    starts = [place for place in (column.dictionary_page_offset, column.data_page_offset) if place]
    place = min(starts, default=0)
    end = place + column.total_compressed_size
    largest = 0
    with open(path, "rb") as file:
        while place < end:
            file.seek(place)
            sizes = _numbers_of_struct(file)
            uncompressed, compressed = sizes.get(UNCOMPRESSED_SIZE, -1), sizes.get(COMPRESSED_SIZE, -1)
            if uncompressed < 0 or compressed < 0:
                raise BrokenHeader("a page without a size")
            largest = max(largest, uncompressed)
            place = file.tell() + compressed
    return largest


def _numbers_of_struct(file: BinaryIO, depth: int = 0) -> dict[int, int]:
    """The integer fields of a struct; other fields are skipped."""
    if depth == DEEPEST:
        raise BrokenHeader("structs nested too deeply")
    numbers: dict[int, int] = {}
    field = 0
    while (head := _byte(file)) != STOP:
        step, kind = divmod(head, 16)
        field = field + step if step else _signed(_varint(file))
        if kind in NUMBERS:
            numbers[field] = _signed(_varint(file))
        elif kind == STRUCT:
            _numbers_of_struct(file, depth + 1)
        else:
            _pass_over(file, kind)
    return numbers


def _pass_over(file: BinaryIO, kind: int) -> None:
    if kind in NO_CONTENT:  # true and false
        return
    lengths = {ONE_BYTE: 1, EIGHT_BYTES: 8}
    if kind != BYTES and kind not in lengths:
        raise BrokenHeader(f"a field of kind {kind}")
    file.seek(_varint(file) if kind == BYTES else lengths[kind], os.SEEK_CUR)


def _byte(file: BinaryIO) -> int:
    byte = file.read(1)
    if not byte:
        raise BrokenHeader("the file ends in a header")
    return byte[0]


def _varint(file: BinaryIO) -> int:
    """Decode a varint: seven bits per byte, lowest first; the last byte lacks the eighth bit."""
    value = 0
    for shift in range(0, 64, 7):
        byte = _byte(file)
        value |= (byte & 127) << shift
        if byte < 128:
            return value
    raise BrokenHeader("a number of more than 64 bits")


def _signed(number: int) -> int:
    """Decode zigzag: 0, 1, 2, 3, … become 0, -1, 1, -2, …"""
    return number >> 1 ^ -(number & 1)


ROWS = 64
"""Rows decoded at once: about 300 kB of web pages. Fewer if pages are so large that the rows might not fit."""

PAGE_SHARE = 4
"""A page may be this many times larger than the largest accepted value: a quarter of a worker's memory."""


def row_group_sizes(name: str, path: str, text_field: str) -> list[tuple[int, int]]:
    """(rows, bytes of text before compression) of each row group."""
    file = _open(name, path, text_field)
    with _damage_told(name):
        chunks = _text_chunks(file, path, text_field, range(file.metadata.num_row_groups))
        return [(rows, int(chunk.total_uncompressed_size)) for rows, chunk in chunks]


def read_column(name: str, path: str, text_field: str, start: int, stop: int, longest: int) -> Iterator[bytes | None]:
    """The values of the column in row groups [start, stop) as raw bytes; None where a row has none.

    `longest` is the largest value that is taken. Pages and values that are larger are refused before they are copied.
    """
    file = _open(name, path, text_field)
    groups = range(start, stop)
    with _damage_told(name):
        for group, (_, chunk) in zip(groups, _text_chunks(file, path, text_field, groups), strict=True):
            rows = _rows_at_once(name, path, chunk, longest)
            for batch in file.iter_batches(rows, row_groups=[group], columns=[text_field], use_threads=False):
                values = batch.column(0).cast(pa.large_binary())
                check_length(name, pc.max(pc.binary_length(values)).as_py() or 0, longest)
                yield from (value.as_py() for value in values)


@contextlib.contextmanager
def _damage_told(name: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, BrokenHeader) as error:
        raise CorpusError(f"{name}: a damaged parquet file ({first_line(error)}); download it again") from error


def _text_chunks(file: Any, path: str, text_field: str, groups: range) -> Iterator[tuple[int, Any]]:
    """(rows, the footer's metadata of the text column) of row groups.

    pyarrow crashes when metadata of a damaged column is accessed, but raises an error when the column is read. So it is
    read first, from a file that returns nothing.
    """
    paths = [file.metadata.schema.column(leaf).path for leaf in range(file.metadata.num_columns)]
    leaf = paths.index(text_field)  # a nested column before it is several leaves
    with _Silent(path) as silent:
        unread = pq.ParquetFile(silent, metadata=file.metadata, pre_buffer=False)
        for group in groups:
            with contextlib.suppress(_NothingGiven):
                list(unread.iter_batches(1, row_groups=[group], columns=[text_field], use_threads=False))
            metadata = file.metadata.row_group(group)
            yield metadata.num_rows, metadata.column(leaf)


class _NothingGiven(OSError):
    """What was asked for up to here is in order."""


class _Silent(io.FileIO):
    """A file that can't be read at all."""

    def read(self, size: int | None = -1) -> bytes:
        raise _NothingGiven(f"{size} bytes were asked for")


def _rows_at_once(name: str, path: str, column: Any, longest: int) -> int:
    """A number of rows that fit even if each is as large as a page: rows may share one dictionary value."""
    page = largest_page(path, column)
    if page > PAGE_SHARE * longest:
        raise CorpusError(
            f"{name}: has pages of {page >> 20} MB, more than the memory allows for one; write the file again with "
            "smaller pages, or count with more memory or fewer workers"
        )
    return max(1, min(ROWS, longest // max(page, 1)))


def _open(name: str, path: str, text_field: str) -> Any:
    try:
        file = pq.ParquetFile(
            pa.OSFile(os.fsencode(path)), pre_buffer=False, buffer_size=1 << 20, page_checksum_verification=True
        )
    except UnicodeDecodeError as error:
        raise CorpusError(f"{name}: a column's name is no UTF-8; write the file again with another name") from error
    except (pa.ArrowException, OSError) as error:
        raise CorpusError(f"{name}: not a whole parquet file ({first_line(error)}); download it again") from error
    _check_column(name, file.schema_arrow, text_field)
    return file


def _check_column(name: str, schema: Any, text_field: str) -> None:
    if text_field not in schema.names:
        raise CorpusError(
            f"{name}: no column {text_field!r}; it has {', '.join(schema.names)}; name the text's by text_field"
        )
    kind = schema.field(text_field).type
    value = kind.value_type if types.is_dictionary(kind) else kind
    is_text = any(
        check(value) for check in (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    )
    if not is_text:
        raise CorpusError(f"{name}: column {text_field!r} holds {kind}, not text; name the text's by text_field")
