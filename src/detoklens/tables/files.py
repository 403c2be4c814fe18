"""Tables as files: parquet with its provenance inside and CSV beside it, all of them written whole or none."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from detoklens.errors import OutputError
from detoklens.tables.csv_text import csv_bytes
from detoklens.writing import make_folder, plain_output_errors, whole_files

if TYPE_CHECKING:
    from detoklens.tables.provenance import Provenance
    from detoklens.tables.schema import Schema

MARK, ABOUT, TABLE = "detoklens", "detoklens.answer", "detoklens.table"
"""Under these names a parquet file keeps its provenance, the description of its answer, and which table of it it is."""


def write_tables(
    tables: Mapping[Path, tuple[Schema, pl.DataFrame]], provenance: Provenance, about: str = ""
) -> list[Path]:
    """Write each table to its parquet file and to the CSV file beside it: first under temporary names, then renamed.

    CSV comes first: a table counts as finished by its parquet file.
    """
    contents: dict[Path, bytes | memoryview] = {}
    for path, (schema, frame) in tables.items():
        contents[path.with_suffix(".csv")] = csv_bytes(schema.conform(frame))
    for path, (schema, frame) in tables.items():
        contents[path] = parquet_bytes(
            schema.conform(frame), {MARK: provenance.to_json(), ABOUT: about, TABLE: schema.name}
        )
    for folder in {path.parent for path in tables}:
        make_folder(folder)
    for path in tables:
        _refuse_foreign(path)
    with whole_files(*contents) as partial_paths:
        for partial, content in zip(partial_paths, contents.values(), strict=True):
            partial.write_bytes(content)
    return list(tables)


def parquet_bytes(frame: pl.DataFrame, metadata: dict[str, str] | None = None) -> memoryview:
    """A table as the content of a parquet file; made in memory, so that a full disk is met by Python's own writing."""
    content = BytesIO()
    frame.write_parquet(content, compression="zstd", metadata=metadata)
    return content.getbuffer()


def read_metadata(path: Path) -> dict[str, str]:
    """What a table's file says of itself; nothing where it was not written here."""
    try:
        with path.open("rb") as file:
            metadata = pl.read_parquet_metadata(file)
    except (pl.exceptions.PolarsError, OSError):
        return {}
    return metadata if MARK in metadata else {}


def _refuse_foreign(path: Path) -> None:
    with plain_output_errors(path):
        is_there = path.exists()
        beside = path.with_suffix(".csv")
        if not is_there and beside.exists():
            raise OutputError(f"{beside} was not written by detoklens and is not overwritten; choose another folder")
    if is_there and not read_metadata(path):
        raise OutputError(f"{path} was not written by detoklens and is not overwritten; choose another folder")
