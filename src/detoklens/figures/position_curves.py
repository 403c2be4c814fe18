"""Which heads and query positions does a figure show? Those that were asked for, or all that the table has."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl


def chosen_heads(table: pl.DataFrame, heads: Sequence[int] | None) -> list[int]:
    """The asked heads, or all that the table has."""
    return list(heads) if heads is not None else sorted(table["head"].unique().to_list())


def chosen_queries(table: pl.DataFrame, queries: Sequence[int] | None) -> list[int]:
    """The asked query positions, or all that the table has."""
    return list(queries) if queries is not None else sorted(table["query_position"].drop_nulls().unique().to_list())


def middle(queries: Sequence[int]) -> int:
    """The middle one of some query positions; 0 where there is none."""
    return queries[len(queries) // 2] if queries else 0
