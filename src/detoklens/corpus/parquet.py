"""Columns of a Parquet file, a few rows at a time."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from detoklens.errors import CorpusError, first_line

UNCOMPRESSED_SIZE, COMPRESSED_SIZE = 2, 3  # the numbers of these fields in a page's header
STOP, NUMBERS, BYTES, STRUCT = 0, (4, 5, 6), 8, 12  # kinds of fields
LENGTHS = {1: 0, 2: 0, 3: 1, 7: 8}  # of the kinds true, false, one byte and eight bytes
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
        elif kind == BYTES:
            file.seek(_varint(file), os.SEEK_CUR)
        elif kind in LENGTHS:
            file.seek(LENGTHS[kind], os.SEEK_CUR)
        else:
            raise BrokenHeader(f"a field of kind {kind}")
    return numbers


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


PAGE_SHARE = 4
"""A page may be this many times larger than the largest accepted value: a quarter of a worker's memory."""


class ParquetFile:
    """A Parquet file; `name` is its name in messages."""

    def __init__(self, name: str, path: str) -> None:
        self.name, self.path = name, path
        try:
            source = pa.OSFile(os.fsencode(path))
            self._file = pq.ParquetFile(source, pre_buffer=False, buffer_size=1 << 20, page_checksum_verification=True)
        except UnicodeDecodeError as error:
            raise CorpusError(f"{name}: a column name is not valid UTF-8; rename the column") from error
        except (pa.ArrowException, OSError) as error:
            raise CorpusError(
                f"{name}: not a complete parquet file ({first_line(error)}); download it again"
            ) from error
        self.schema: pa.Schema = self._file.schema_arrow

    def sizes(self, columns: Sequence[str]) -> list[tuple[int, int]]:
        """(rows, bytes of these columns before compression) of each row group."""
        with self._damage_reported():
            groups = self._chunks(columns, range(self._file.metadata.num_row_groups))
            return [(rows, sum(int(chunk.total_uncompressed_size) for chunk in chunks)) for rows, chunks in groups]

    def batches(self, columns: Sequence[str], groups: range, longest: int, most_rows: int) -> Iterator[Any]:
        """Rows of these columns, as many at once as fit; `longest` is the size of the largest accepted value.

        A text may be as large as its page, and rows may share one dictionary value: each row is taken to be that large.
        """
        with self._damage_reported():
            for group, (rows_there, chunks) in zip(groups, self._chunks(columns, groups), strict=True):
                page = max(largest_page(self.path, chunk) for chunk in chunks)
                if page > PAGE_SHARE * longest:
                    raise CorpusError(
                        f"{self.name}: has pages of {page >> 20} MB, too large for the memory limit; rewrite the "
                        "file with smaller pages, or count with more memory or fewer workers"
                    )
                is_text = any(chunk.physical_type == "BYTE_ARRAY" for chunk in chunks)
                numbers = max(chunk.num_values for chunk in chunks)
                row = page if is_text else 8 * numbers // max(1, rows_there)
                rows = max(1, min(most_rows, longest // max(row, 1)))
                yield from self._file.iter_batches(rows, row_groups=[group], columns=list(columns), use_threads=False)

    def _chunks(self, columns: Sequence[str], groups: range) -> Iterator[tuple[int, list[Any]]]:
        """(rows, the footer's metadata of the columns) of row groups.

        pyarrow crashes when metadata of a damaged column is accessed, but raises an error when the column is read. So
        it is read first, from a file that returns nothing.
        """
        metadata = self._file.metadata
        paths = [metadata.schema.column(leaf).path for leaf in range(metadata.num_columns)]
        leaves = [leaf for leaf, path in enumerate(paths) if path.split(".")[0] in columns or path in columns]
        with _UnreadableFile(self.path) as unreadable:
            unread = pq.ParquetFile(unreadable, metadata=metadata, pre_buffer=False)
            for group in groups:
                with contextlib.suppress(_ReadAttempted):
                    list(unread.iter_batches(1, row_groups=[group], columns=list(columns), use_threads=False))
                row_group = metadata.row_group(group)
                yield row_group.num_rows, [row_group.column(leaf) for leaf in leaves]

    @contextlib.contextmanager
    def _damage_reported(self) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, OSError, BrokenHeader) as error:
            raise CorpusError(
                f"{self.name}: a damaged parquet file ({first_line(error)}); download it again"
            ) from error


class _ReadAttempted(OSError):
    """Reading was attempted, so the metadata before it is valid."""


class _UnreadableFile(io.FileIO):
    def read(self, size: int | None = -1) -> bytes:
        raise _ReadAttempted(f"{size} bytes were asked for")
