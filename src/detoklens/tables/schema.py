"""What columns does a table have, and what do they mean? Declared once, checked whenever a table is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

PolarsType = pl.DataType | type[pl.DataType]


@dataclass(frozen=True)
class Column:
    """One column: its name, its type, and one line that says what its numbers are."""

    name: str
    dtype: PolarsType
    meaning: str


@dataclass(frozen=True)
class Schema:
    """A table's name (also its file's name), the question that it answers, and its columns in order."""

    name: str
    question: str
    columns: tuple[Column, ...]

    def frame(self, data: Mapping[str, Any]) -> pl.DataFrame:
        """A table of these columns from arrays or lists; NaN in a float column becomes null: undefined is null."""
        names = [column.name for column in self.columns]
        if set(names) != set(data):
            raise ValueError(f"table {self.name} has columns {names}, not {list(data)}")
        frame = pl.DataFrame({name: data[name] for name in names}, strict=False)
        return self.conform(frame)

    def conform(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The same table in the declared order and types."""
        return frame.select(
            pl.col(column.name).cast(column.dtype).fill_nan(None)
            if column.dtype in (pl.Float32, pl.Float64)
            else pl.col(column.name).cast(column.dtype)
            for column in self.columns
        )

    def without(self, *names: str) -> Schema:
        """The same table without some columns, where an option leaves them out."""
        return Schema(self.name, self.question, tuple(column for column in self.columns if column.name not in names))


HEAD = Column("head", pl.Int32, "attention head of layer 0, from 0")
