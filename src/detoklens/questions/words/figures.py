"""Ranks of a word's preceding piece, by head."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from matplotlib.figure import Figure

from detoklens.figures import theme
from detoklens.figures.marks import point_entry, reference
from detoklens.figures.panels import chosen_heads, head_rows, in_order, points

HEAD, OTHER = theme.SERIES[0], theme.SERIES[1]
SHARES = {"first": 0.0, "top_1_percent": 0.01, "top_10_percent": 0.1}  # with chance


def words(words_by_head: pl.DataFrame, *, heads: Sequence[int] | None = None, width: theme.Width = "page") -> Figure:
    """Draw each head's median rank of a word's preceding piece, and the shares of pairs near the top."""
    asked = chosen_heads(words_by_head, heads)
    rows = in_order(words_by_head, asked)
    titles = [
        "median rank share\n(lower is better)",
        "pairs at\nrank 1",
        "pairs in\nthe top 1 %",
        "pairs in\nthe top 10 %",
    ]
    legend = [point_entry("head", HEAD), point_entry("another word's piece", OTHER, filled=False)]
    figure, panels = head_rows(asked, width, titles, legend=legend)
    points(panels[0], rows["null_median_share"], OTHER, filled=False)
    points(panels[0], rows["median_share"], HEAD)
    reference(panels[0], x=0.5)
    for axes, (column, chance) in zip(panels[1:], SHARES.items(), strict=True):
        points(axes, rows[column], HEAD)
        reference(axes, x=chance)
    return figure
