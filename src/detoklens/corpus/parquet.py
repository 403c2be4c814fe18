"""The text column of a parquet file, a few rows at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from detoklens.errors import CorpusError, first_line

ROWS = 64
"""Rows decoded at once: about 300 kB of web pages, and not too much where a row is a book."""


def row_group_sizes(name: str, path: str, text_field: str) -> list[tuple[int, int]]:
    """(rows, bytes of text before compression) of each row group."""
    metadata = _open(name, path, text_field).metadata
    column = metadata.schema.to_arrow_schema().get_field_index(text_field)
    groups = (metadata.row_group(group) for group in range(metadata.num_row_groups))
    return [(group.num_rows, _text_size(group, column, text_field)) for group in groups]


def _text_size(group: Any, field: int, text_field: str) -> int:
    """Columns of a row group are leaves: a nested column before the text moves it to the right."""
    for leaf in range(field, group.num_columns):
        if group.column(leaf).path_in_schema == text_field:
            return int(group.column(leaf).total_uncompressed_size)
    return int(group.total_byte_size)


def read_column(name: str, path: str, text_field: str, start: int, stop: int) -> Iterator[bytes | None]:
    """The values of the column in row groups [start, stop) as raw bytes; None where a row has none."""
    import pyarrow as pa

    file = _open(name, path, text_field)
    try:
        for batch in file.iter_batches(ROWS, row_groups=range(start, stop), columns=[text_field], use_threads=False):
            yield from batch.column(0).cast(pa.large_binary()).to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise CorpusError(f"{name}: a damaged parquet file ({first_line(error)}); download it again") from error


def _open(name: str, path: str, text_field: str) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(pa.OSFile(os.fsencode(path)), pre_buffer=False, buffer_size=1 << 20)
    except (pa.ArrowException, OSError) as error:
        raise CorpusError(f"{name}: not a whole parquet file ({first_line(error)}); download it again") from error
    _check_column(name, file.schema_arrow, text_field)
    return file


def _check_column(name: str, schema: Any, text_field: str) -> None:
    import pyarrow.types as types

    if text_field not in schema.names:
        raise CorpusError(
            f"{name}: no column {text_field!r}; it has {', '.join(schema.names)}; name the text's with --text-field"
        )
    kind = schema.field(text_field).type
    value = kind.value_type if types.is_dictionary(kind) else kind
    is_text = any(
        check(value) for check in (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    )
    if not is_text:
        raise CorpusError(f"{name}: column {text_field!r} holds {kind}, not text; name the text's with --text-field")
