"""How many of the keys that a head ranks first are positives? Beside what a constant score would reach."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from matplotlib.figure import Figure

from detoklens.figures import theme
from detoklens.figures.head_rows import head_rows, in_order, points
from detoklens.figures.marks import point_entry
from detoklens.figures.position_curves import chosen_heads

HEAD, CHANCE = theme.SERIES[0], theme.SERIES[1]


@theme.figure_function
def precision(
    precision_by_head: pl.DataFrame, *, heads: Sequence[int] | None = None, width: theme.Width = "page"
) -> Figure:
    """How many of the keys that a head ranks first precede the query token in the corpus?"""
    asked = chosen_heads(precision_by_head, heads)
    rows = in_order(precision_by_head, asked)
    k = max(rows["k"].drop_nulls().to_list(), default=0)
    columns = {"average_precision": "average precision", "precision_at_k": f"precision of the first {k} keys"}
    legend = [point_entry("head", HEAD), point_entry("constant score", CHANCE, filled=False)]
    figure, panels = head_rows(asked, width, list(columns.values()), legend=legend)
    for axes, column in zip(panels, columns, strict=True):
        points(axes, rows[f"chance_{column}"], CHANCE, filled=False)
        points(axes, rows[column], HEAD)
    return figure
