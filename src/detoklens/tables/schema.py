"""Schemas: the columns of a table, their types and meanings, checked whenever a table is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import polars as pl

from detoklens.errors import CheckpointError

TypeName = Literal["Int32", "Int64", "UInt32", "Float32", "Float64", "String", "Boolean"]


@dataclass(frozen=True)
class Column:
    """One column: its name, the name of its polars type, and its meaning in one line.

    A `defined` number exists for every model: NaN in it comes from an overflow. In other columns NaN means undefined.
    """

    name: str
    dtype: TypeName
    meaning: str
    defined: bool = False

    @property
    def polars_type(self) -> pl.DataType:
        found: pl.DataType = getattr(pl, self.dtype)
        return found


@dataclass(frozen=True)
class Schema:
    """A table: its name (also of its file), its title, and its columns in order."""

    name: str
    question: str
    columns: tuple[Column, ...]

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    def frame(self, data: Mapping[str, Any]) -> pl.DataFrame:
        """Make a table from arrays or lists; see `conform`."""
        if set(self.names) != set(data):
            raise ValueError(f"table {self.name} has columns {self.names}, not {list(data)}")
        return self.conform(pl.DataFrame({name: data[name] for name in self.names}, strict=False))

    def grid(self, axes: Mapping[str, Any], data: Mapping[str, Any]) -> pl.DataFrame:
        """Make a table with one row for each combination of the axes' values, the last axis fastest.

        `data` holds arrays that broadcast to one dimension per axis, whole columns as lists, and single values.
        """
        shape = tuple(len(values) for values in axes.values())
        places = np.indices(shape).reshape(len(shape), -1)
        columns: dict[str, Any] = {
            name: pl.Series(list(values)).gather(place)
            for (name, values), place in zip(axes.items(), places, strict=True)
        }
        for name, values in data.items():
            if isinstance(values, np.ndarray):
                columns[name] = np.broadcast_to(values, shape).ravel()
            else:
                columns[name] = values if isinstance(values, list) else [values] * places.shape[1]
        return self.frame(columns)

    def conform(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Bring a table into the declared order and types; an undefined number becomes null.

        Raise a CheckpointError if the model's numbers overflow: for infinite numbers, and for NaN in a defined column.
        """
        conforming = frame.select(pl.col(column.name).cast(column.polars_type) for column in self.columns)
        for column in self.columns:
            values = conforming[column.name]
            if not values.dtype.is_float():
                continue
            is_infinite = values.is_infinite().any()
            if is_infinite or (column.defined and values.is_nan().any()):
                wrong = "infinite" if is_infinite else "not a number"
                raise CheckpointError(
                    f"table {self.name}: {column.name} is {wrong}: the model's numbers overflow their type; "
                    'check the checkpoint, or load it with dtype="float64"'
                )
        return conforming.fill_nan(None)

    def empty(self) -> pl.DataFrame:
        """A table without rows."""
        return pl.DataFrame(schema={column.name: column.polars_type for column in self.columns})

    def without(self, *names: str) -> Schema:
        """The schema without some columns."""
        return Schema(self.name, self.question, tuple(column for column in self.columns if column.name not in names))

    def with_column(self, column: Column) -> Schema:
        """The schema with one column replaced."""
        columns = tuple(column if each.name == column.name else each for each in self.columns)
        return Schema(self.name, self.question, columns)


HEAD = Column("head", "Int32", "attention head of layer 0, from 0")


TOKEN_ID = Column("token_id", "Int32", "id of the token")
TOKEN = Column("token", "String", "text of the token; null without a tokenizer")
QUERY_TOKEN_ID = Column("query_token_id", "Int32", "token id of the query")
QUERY_TOKEN = Column("query_token", "String", "text of the query; null without a tokenizer")
KEY_TOKEN_ID = Column("key_token_id", "Int32", "token id of the key")
KEY_TOKEN = Column("key_token", "String", "text of the key; null without a tokenizer")
SCORE = Column(
    "score", "Float32", "Tᵉᵉ of the pair; with centring, minus the key's mean over all query tokens", defined=True
)
RANK = Column("rank", "Int32", "rank of the key among all tokens by score, from 1; ties by token id")
JOINED = Column("joined", "String", "text of the key followed by the query")
BIGRAM_COUNT = Column("count", "Int64", "how often the query follows the key in the corpus")


COUNT_TOTALS = Schema(
    "count_totals",
    "Totals of the counted text",
    (
        Column("documents", "Int64", "documents read"),
        Column("megabytes", "Float64", "size of the text in UTF-8, in millions of bytes"),
        Column("tokens", "Int64", "tokens of all documents, without special tokens"),
        Column("distinct_tokens", "Int64", "tokens of the vocabulary that occur"),
        Column("bigrams", "Int64", "pairs of adjacent tokens within a document"),
        Column("distinct_bigrams", "Int64", "distinct pairs of adjacent tokens"),
        Column("replaced_characters", "Int64", "undecodable bytes and lone surrogates, replaced with U+FFFD"),
        Column("skipped_records", "Int64", "invalid records that were skipped"),
    ),
)

PREDECESSORS = Schema(
    "predecessors",
    "Most frequent predecessors of a token",
    (
        Column("rank", "Int32", "rank by count, from 1"),
        Column("prefix_id", "Int32", "token id of the predecessor"),
        Column("prefix", "String", "its text"),
        Column("count", "Int64", "how often it directly precedes the token within a document"),
        Column("share", "Float64", "share of all predecessors of the token"),
    ),
)
