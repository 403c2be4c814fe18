"""Shape of the position terms: slope, wave and attention by position alone, one row per head."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from matplotlib.figure import Figure

from detoklens.figures import theme
from detoklens.figures.marks import point_entry
from detoklens.figures.panels import Measure, chosen_heads, chosen_queries, head_rows, in_order, points, show_neutral

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


@theme.figure_function
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
