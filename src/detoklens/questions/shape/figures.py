"""Shape of the position terms: slope, wave and attention by position alone, one row per head."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from matplotlib.figure import Figure

from detoklens.figures import theme
from detoklens.figures.labels import QUERY_POSITION
from detoklens.figures.marks import line, line_entry, point_entry
from detoklens.figures.panels import (
    Measure,
    chosen_heads,
    chosen_queries,
    head_panels,
    head_rows,
    in_order,
    points,
    show_neutral,
)

MEASURES = (
    Measure("alibi_slope", "slope of Tᵖ\n(as ALiBi's)", 0.0),
    Measure("r_squared", "R² of\nthe line"),
    Measure("period", "leading wave's\nperiod"),
    Measure("wave_share", "leading wave's\nshare"),
    Measure("last_5", "attention on\nlast 5"),
    Measure("last_15", "attention on\nlast 15"),
    Measure("on_first", "attention on\nposition 0"),
    Measure("entropy", "entropy\n(bits)"),
)
REACHES = {
    "last_15": ("last 15 tokens", theme.SERIES[0]),
    "on_first": ("position 0", theme.SERIES[1]),
    "on_first_usual_scale": ("position 0 with its neighbours' σ", theme.SERIES[2]),
}


def shape_numbers(
    shape: pl.DataFrame,
    *,
    heads: Sequence[int] | None = None,
    queries: Sequence[int] | None = None,
    width: theme.Width = "page",
) -> Figure:
    """Line, leading wave and attention by position alone of each head."""
    asked, positions = chosen_heads(shape, heads), chosen_queries(shape, queries)
    legend = [
        point_entry(f"query {query}", theme.style_of(place), filled=False) for place, query in enumerate(positions)
    ]
    figure, panels = head_rows(asked, width, [measure.title for measure in MEASURES], legend=legend)
    for axes, measure in zip(panels, MEASURES, strict=True):
        show_neutral(axes, measure)
        for place, query in enumerate(positions):
            rows = in_order(shape.filter(query_position=query), asked)
            points(axes, rows[measure.column], theme.style_of(place), filled=False)
    return figure


def reach(reach: pl.DataFrame, *, heads: Sequence[int] | None = None, width: theme.Width = "page") -> Figure:
    """Mass of attention by position alone on near tokens and on position 0, from every query position."""
    shown = {column: named for column, named in REACHES.items() if column in reach.columns}
    figure, panels = head_panels(
        chosen_heads(reach, heads),
        width,
        x_label=QUERY_POSITION,
        y_label="attention by position alone",
        legend=[line_entry(name, style) for name, style in shown.values()],
    )
    for head, axes in panels.items():
        rows = reach.filter(head=head).sort("query_position")
        for column, (_, style) in shown.items():
            line(axes, rows["query_position"], rows[column], style)
        axes.set_ylim(-0.02, 1.02)
    return figure
