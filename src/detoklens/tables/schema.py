"""Schemas: the columns of a table, their types and meanings, checked whenever a table is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import polars as pl

from detoklens.errors import CheckpointError

TypeName = Literal["Int32", "Int64", "UInt32", "Float32", "Float64", "String", "Boolean"]


@dataclass(frozen=True)
class Column:
    """One column: its name, its meaning in one line, and the name of its polars type.

    A `defined` number exists for every model: NaN in it comes from an overflow. In other columns NaN means undefined.
    """

    name: str
    meaning: str
    dtype: TypeName = "Float64"
    defined: bool = False


class Schema:
    """A table: its name (also of its file), its title, and its columns in order."""

    def __init__(self, name: str, question: str, *columns: Column) -> None:
        self.name, self.question, self.columns = name, question, columns

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def types(self) -> dict[str, pl.DataType]:
        """The polars type of each column."""
        return {column.name: getattr(pl, column.dtype) for column in self.columns}

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
        conforming = frame.select(pl.col(name).cast(dtype) for name, dtype in self.types.items())
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

    def of_rows(self, rows: Sequence[tuple[Any, ...]]) -> pl.DataFrame:
        """Make a table from rows whose values are in the order of the columns."""
        return self.conform(pl.DataFrame(rows, schema=self.types, orient="row"))

    def without(self, *names: str) -> Schema:
        """The schema without some columns."""
        return Schema(self.name, self.question, *(column for column in self.columns if column.name not in names))

    def with_column(self, column: Column) -> Schema:
        """The schema with one column replaced."""
        columns = tuple(column if each.name == column.name else each for each in self.columns)
        return Schema(self.name, self.question, *columns)


HEAD = Column("head", "attention head of layer 0, from 0", "Int32")
TOKEN_ID = Column("token_id", "id of the token", "Int32")
TOKEN = Column("token", "text of the token; null without a tokenizer", "String")
QUERY_TOKEN_ID = Column("query_token_id", "token id of the query", "Int32")
QUERY_TOKEN = Column("query_token", "text of the query; null without a tokenizer", "String")
KEY_TOKEN_ID = Column("key_token_id", "token id of the key", "Int32")
KEY_TOKEN = Column("key_token", "text of the key; null without a tokenizer", "String")
SCORE = Column(
    "score", "Tᵉᵉ of the pair; with centring, minus the key's mean over all query tokens", "Float32", defined=True
)
RANK = Column("rank", "rank of the key among all tokens by score, from 1; ties by token id", "Int32")
JOINED = Column("joined", "text of the key followed by the query", "String")
BIGRAM_COUNT = Column("count", "how often the query follows the key in the corpus", "Int64")


COUNT_TOTALS = Schema(
    "count_totals",
    "Totals of the counted text",
    Column("documents", "documents read", "Int64"),
    Column("megabytes", "size of the text in UTF-8, in millions of bytes"),
    Column("tokens", "tokens of all documents, without special tokens", "Int64"),
    Column("distinct_tokens", "tokens of the vocabulary that occur", "Int64"),
    Column("bigrams", "pairs of adjacent tokens within a document", "Int64"),
    Column("distinct_bigrams", "distinct pairs of adjacent tokens", "Int64"),
    Column("replaced_characters", "undecodable bytes and lone surrogates, replaced with U+FFFD", "Int64"),
    Column("skipped_records", "invalid records that were skipped", "Int64"),
)

PREDECESSORS = Schema(
    "predecessors",
    "Most frequent predecessors of a token",
    Column("rank", "rank by count, from 1", "Int32"),
    Column("prefix_id", "token id of the predecessor", "Int32"),
    Column("prefix", "its text", "String"),
    Column("count", "how often it directly precedes the token within a document", "Int64"),
    Column("share", "share of all predecessors of the token"),
)
