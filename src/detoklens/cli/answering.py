"""How a command that asks a model ends: its tables under --out, whole or not at all, and the answer on stdout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detoklens.cli.options import Format
from detoklens.cli.output import emit, say

if TYPE_CHECKING:
    import polars as pl

    from detoklens.corpus.counts import Counts
    from detoklens.scores.layer import Layer
    from detoklens.tables.provenance import Provenance
    from detoklens.tables.schema import Schema


def provenance_of(command: str, layer: Layer, asked: Mapping[str, Any], counts: Counts | None = None) -> Provenance:
    """Where a table comes from: the model, the counts, what was asked."""
    from detoklens.tables.provenance import Provenance

    return Provenance(command, layer.name, layer.fingerprint, counts.fingerprint if counts else None, asked)


def write_answer(
    layer: Layer,
    tables: Sequence[tuple[Schema, pl.DataFrame]],
    provenance: Provenance,
    out: Path | None,
) -> None:
    """Write the tables where a folder was named, and say what reading the model left out."""
    from detoklens.tables.files import write_tables

    for note in layer.notes:
        say(note)
    if out is not None:
        for path in write_tables(out, tables, provenance):
            say(f"wrote {path}")


def show_answer(layer: Layer, schema: Schema, frame: pl.DataFrame, output_format: Format) -> None:
    """Print the table that answers the command's question."""
    emit(frame, output_format, title=f"{layer.name}: {schema.question}")
