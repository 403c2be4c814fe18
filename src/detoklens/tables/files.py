"""Tables as files: parquet with its provenance inside, each written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from detoklens.errors import OutputError
from detoklens.tables.provenance import Provenance
from detoklens.tables.schema import Schema

MARK = "detoklens"


def write_tables(folder: Path, tables: Sequence[tuple[Schema, pl.DataFrame]], provenance: Provenance) -> list[Path]:
    """Write each table to FOLDER/NAME.parquet; first all under temporary names, then all renamed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return _write_all(folder, tables, provenance)
    except OSError as error:
        raise OutputError(
            f"{error.filename or folder}: {error.strerror or error}; name a folder for --out that can be written to"
        ) from error


def _write_all(folder: Path, tables: Sequence[tuple[Schema, pl.DataFrame]], provenance: Provenance) -> list[Path]:
    paths = [folder / f"{schema.name}.parquet" for schema, _ in tables]
    for path in paths:
        _refuse_foreign(path)
    partial_paths = [path.with_name(f".{path.name}.{os.getpid()}.partial") for path in paths]
    try:
        for partial, (schema, frame) in zip(partial_paths, tables, strict=True):
            metadata = {MARK: provenance.to_json()}
            schema.conform(frame).write_parquet(partial, compression="zstd", metadata=metadata)
        for partial, path in zip(partial_paths, paths, strict=True):
            partial.replace(path)
    finally:
        for partial in partial_paths:
            partial.unlink(missing_ok=True)
    return paths


def read_provenance(path: Path) -> str | None:
    """The provenance of a table as JSON, or None where the file was not written here."""
    try:
        return pl.read_parquet_metadata(path).get(MARK)
    except (pl.exceptions.PolarsError, OSError):
        return None


def _refuse_foreign(path: Path) -> None:
    if path.exists() and read_provenance(path) is None:
        raise OutputError(f"{path} was not written by detoklens and is not overwritten; choose another --out")
