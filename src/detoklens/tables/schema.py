"""What columns does a table have, and what do they mean? Declared once, checked whenever a table is made.

Types are named, not imported: what only describes a table (help, completion) does without polars.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import polars as pl

from detoklens.errors import CheckpointError

TypeName = Literal["Int32", "Int64", "UInt32", "Float32", "Float64", "String", "Boolean"]
FLOATS = ("Float32", "Float64")


@dataclass(frozen=True)
class Column:
    """One column: its name, the name of its polars type, and one line that says what its numbers are."""

    name: str
    dtype: TypeName
    meaning: str

    @property
    def polars_type(self) -> pl.DataType:
        found: pl.DataType = getattr(pl, self.dtype)
        return found


@dataclass(frozen=True)
class Schema:
    """A table's name (also its file's name), the question that it answers, and its columns in order."""

    name: str
    question: str
    columns: tuple[Column, ...]

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    def frame(self, data: Mapping[str, Any]) -> pl.DataFrame:
        """A table of these columns from arrays or lists; NaN in a float column becomes null: undefined is null."""
        if set(self.names) != set(data):
            raise ValueError(f"table {self.name} has columns {self.names}, not {list(data)}")
        return self.conform(pl.DataFrame({name: data[name] for name in self.names}, strict=False))

    def conform(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The same table in the declared order and types; an infinite number is refused, as it tells of an overflow."""
        conforming = frame.select(
            pl.col(column.name).cast(column.polars_type).fill_nan(None)
            if column.dtype in FLOATS
            else pl.col(column.name).cast(column.polars_type)
            for column in self.columns
        )
        for column in self.columns:
            if column.dtype in FLOATS and conforming[column.name].is_infinite().any():
                raise CheckpointError(
                    f"table {self.name}: {column.name} is infinite: the model's numbers are too large or too small for "
                    'their type; check the checkpoint, or load it with dtype="float64"'
                )
        return conforming

    def empty(self) -> pl.DataFrame:
        """A table without rows: the question has no answer here."""
        return pl.DataFrame(schema={column.name: column.polars_type for column in self.columns})

    def without(self, *names: str) -> Schema:
        """The same table without some columns, where an option leaves them out."""
        return Schema(self.name, self.question, tuple(column for column in self.columns if column.name not in names))

    def with_column(self, column: Column) -> Schema:
        """The same table with another meaning of one column."""
        columns = tuple(column if each.name == column.name else each for each in self.columns)
        return Schema(self.name, self.question, columns)

    def as_found(self, frame: pl.DataFrame) -> Schema:
        """The schema without the columns that an answer leaves out: counts, where there are none."""
        return self.without(*(name for name in self.names if name not in frame.columns))


HEAD = Column("head", "Int32", "attention head of layer 0, from 0")


TOKEN_ID = Column("token_id", "Int32", "id of the token")
TOKEN = Column("token", "String", "text of the token; null without a tokenizer")
QUERY_TOKEN_ID = Column("query_token_id", "Int32", "id of the token that attends")
QUERY_TOKEN = Column("query_token", "String", "text of the token that attends; null without a tokenizer")
KEY_TOKEN_ID = Column("key_token_id", "Int32", "id of the token attended to")
KEY_TOKEN = Column("key_token", "String", "text of the token attended to; null without a tokenizer")
SCORE = Column("score", "Float32", "Tᵉᵉ of the pair; with centring, less the key's mean over all query tokens")
RANK = Column("rank", "Int32", "place of the key among all key tokens by score, 1 is the largest; ties by token id")
JOINED = Column("joined", "String", "text of the key followed by the query, as they stand in running text")
BIGRAM_COUNT = Column("count", "Int64", "how often the key is followed by the query in the corpus")
