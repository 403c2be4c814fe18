"""Columns of a Parquet file, a few rows at a time."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as types

from detoklens.corpus.records import check_length, name_the_field
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


ROWS = 64
"""Rows decoded at once: about 300 kB of web pages. Fewer if pages are so large that the rows might not fit."""

PAGE_SHARE = 4
"""A page may be this many times larger than the largest accepted value: a quarter of a worker's memory."""


def row_group_sizes(name: str, path: str, text_field: str) -> list[tuple[int, int]]:
    """(rows, bytes of text before compression) of each row group."""
    return sizes_of_columns(name, path, _open_text(name, path, text_field), [text_field])


def read_column(name: str, path: str, text_field: str, start: int, stop: int, longest: int) -> Iterator[bytes | None]:
    """The values of the column in row groups [start, stop) as raw bytes; None where a row has none.

    `longest` is the largest value that is taken. Pages and values that are larger are refused before they are copied.
    """
    file = _open_text(name, path, text_field)
    for batch in batches_of_columns(name, path, file, [text_field], range(start, stop), longest, ROWS):
        with _damage_told(name):
            values = batch.column(0).cast(pa.large_binary())
            check_length(name, pc.max(pc.binary_length(values)).as_py() or 0, longest)
        yield from (value.as_py() for value in values)


def sizes_of_columns(name: str, path: str, file: Any, columns: Sequence[str]) -> list[tuple[int, int]]:
    """(rows, bytes of these columns before compression) of each row group."""
    with _damage_told(name):
        groups = _chunks(file, path, columns, range(file.metadata.num_row_groups))
        return [(rows, sum(int(chunk.total_uncompressed_size) for chunk in chunks)) for rows, chunks in groups]


def batches_of_columns(
    name: str, path: str, file: Any, columns: Sequence[str], groups: range, longest: int, most_rows: int
) -> Iterator[Any]:
    """Rows of these columns, as many at once as fit.

    A text may be as large as its page, and rows may share one dictionary value: each row is taken to be that large.
    """
    with _damage_told(name):
        for group, (rows_there, chunks) in zip(groups, _chunks(file, path, columns, groups), strict=True):
            page = max(largest_page(path, chunk) for chunk in chunks)
            if page > PAGE_SHARE * longest:
                raise CorpusError(
                    f"{name}: has pages of {page >> 20} MB, more than the memory allows for one; write the file again "
                    "with smaller pages, or count with more memory or fewer workers"
                )
            is_text = any(chunk.physical_type == "BYTE_ARRAY" for chunk in chunks)
            numbers = max(chunk.num_values for chunk in chunks)
            row = page if is_text else 8 * numbers // max(1, rows_there)
            rows = max(1, min(most_rows, longest // max(row, 1)))
            yield from file.iter_batches(rows, row_groups=[group], columns=list(columns), use_threads=False)


@contextlib.contextmanager
def _damage_told(name: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, BrokenHeader) as error:
        raise CorpusError(f"{name}: a damaged parquet file ({first_line(error)}); download it again") from error


def _chunks(file: Any, path: str, columns: Sequence[str], groups: range) -> Iterator[tuple[int, list[Any]]]:
    """(rows, the footer's metadata of the columns) of row groups.

    pyarrow crashes when metadata of a damaged column is accessed, but raises an error when the column is read. So it is
    read first, from a file that returns nothing.
    """
    paths = [file.metadata.schema.column(leaf).path for leaf in range(file.metadata.num_columns)]
    leaves = [
        leaf for leaf, leaf_path in enumerate(paths) if leaf_path.split(".")[0] in columns or leaf_path in columns
    ]
    with _Silent(path) as silent:
        unread = pq.ParquetFile(silent, metadata=file.metadata, pre_buffer=False)
        for group in groups:
            with contextlib.suppress(_NothingGiven):
                list(unread.iter_batches(1, row_groups=[group], columns=list(columns), use_threads=False))
            metadata = file.metadata.row_group(group)
            yield metadata.num_rows, [metadata.column(leaf) for leaf in leaves]


class _NothingGiven(OSError):
    """Reading was attempted, so the metadata before it is valid."""


class _Silent(io.FileIO):
    """A file that can't be read at all."""

    def read(self, size: int | None = -1) -> bytes:
        raise _NothingGiven(f"{size} bytes were asked for")


def open_parquet(name: str, path: str) -> Any:
    try:
        return pq.ParquetFile(
            pa.OSFile(os.fsencode(path)), pre_buffer=False, buffer_size=1 << 20, page_checksum_verification=True
        )
    except UnicodeDecodeError as error:
        raise CorpusError(f"{name}: a column name is not valid UTF-8; rename the column") from error
    except (pa.ArrowException, OSError) as error:
        raise CorpusError(f"{name}: not a whole parquet file ({first_line(error)}); download it again") from error


def _open_text(name: str, path: str, text_field: str) -> Any:
    file = open_parquet(name, path)
    schema = file.schema_arrow
    if text_field not in schema.names:
        raise CorpusError(f"{name}: no column {text_field!r}; it has {', '.join(schema.names)}; {_advice(schema)}")
    if not _holds_text(schema.field(text_field)):
        kind = schema.field(text_field).type
        raise CorpusError(f"{name}: column {text_field!r} holds {kind}, not text; {_advice(schema)}")
    return file


def _holds_text(field: Any) -> bool:
    kind = field.type.value_type if types.is_dictionary(field.type) else field.type
    return kind in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())


def _advice(schema: Any) -> str:
    return name_the_field([field.name for field in schema if _holds_text(field)])
