"""Lines over key positions: what the figures of T^p, T^pp, their sum and its softmax have in common."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from matplotlib.artist import Artist
from matplotlib.figure import Figure

from detoklens.figures import theme
from detoklens.figures.marks import band, band_entry, line, line_entry
from detoklens.figures.panels import head_panels
from detoklens.figures.wording import KEY_POSITION

MEAN, LARGEST, SMALLEST = theme.SERIES[0], theme.SERIES[2], theme.SERIES[1]


def chosen_heads(table: pl.DataFrame, heads: Sequence[int] | None) -> list[int]:
    """The asked heads, or all that the table has."""
    return list(heads) if heads is not None else sorted(table["head"].unique().to_list())


def chosen_queries(table: pl.DataFrame, queries: Sequence[int] | None) -> list[int]:
    """The asked query positions, or all that the table has."""
    return list(queries) if queries is not None else sorted(table["query_position"].drop_nulls().unique().to_list())


def middle(queries: Sequence[int]) -> int:
    """The middle one of some query positions; 0 where there is none."""
    return queries[len(queries) // 2] if queries else 0


def rows_of(positions: pl.DataFrame, quantity: str, layer_norm: bool = True) -> pl.DataFrame:
    """One quantity's rows in the order of keys."""
    kept = (pl.col("quantity") == quantity) & (pl.col("layer_norm") == layer_norm)
    return positions.filter(kept).sort("head", "query_position", "key_position")


def query_curves(
    positions: pl.DataFrame,
    quantity: str,
    y_label: str,
    heads: Sequence[int] | None,
    queries: Sequence[int] | None,
    width: theme.Width,
) -> Figure:
    """A panel a head: one query with the extreme σ, or several queries with a line each."""
    rows = rows_of(positions, quantity)
    asked = chosen_queries(rows, queries)
    many = len(asked) > 1
    has_extremes = not rows["at_largest_scale"].drop_nulls().is_empty()
    legend = [line_entry(f"query {query}", theme.style_of(place)) for place, query in enumerate(asked)]
    if not many and asked:
        legend = _extremes_legend(asked[0]) if has_extremes else legend
    figure, panels = head_panels(chosen_heads(rows, heads), width, x_label=KEY_POSITION, y_label=y_label, legend=legend)
    for head, axes in panels.items():
        for place, query in enumerate(asked):
            curve = rows.filter((pl.col("head") == head) & (pl.col("query_position") == query))
            style = theme.style_of(place)
            band(axes, curve["key_position"], curve["low"], curve["high"], style)
            if not many:
                line(axes, curve["key_position"], curve["at_largest_scale"], LARGEST, linewidth=0.7)
                line(axes, curve["key_position"], curve["at_smallest_scale"], SMALLEST, linewidth=0.7)
            line(axes, curve["key_position"], curve["mean"], style)
    return figure


def _extremes_legend(query: int) -> list[Artist]:
    return [
        line_entry(f"query {query}, mean σ", MEAN),
        line_entry("largest σ", LARGEST),
        line_entry("smallest σ", SMALLEST),
        band_entry("most pairs of tokens", MEAN),
    ]
