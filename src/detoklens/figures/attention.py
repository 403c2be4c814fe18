"""Does attention on real text look as position alone predicts? One query position, mean and band over documents."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from matplotlib.figure import Figure

from detoklens.figures import theme
from detoklens.figures.marks import band, band_entry, line, line_entry
from detoklens.figures.panels import head_panels
from detoklens.figures.position_curves import chosen_heads, chosen_queries, middle
from detoklens.figures.wording import KEY_POSITION

MEASURED, PREDICTED = theme.SERIES[0], theme.SERIES[1]


@theme.figure_function
def attention(
    attention: pl.DataFrame,
    *,
    heads: Sequence[int] | None = None,
    query: int | None = None,
    last: int | None = None,
    width: theme.Width = "page",
) -> Figure:
    """How much does real text attend to each position? At one query (default: the middle one), all or `last` keys."""
    asked = query if query is not None else middle(chosen_queries(attention, None))
    rows = attention.filter(query_position=asked).sort("head", "key_position")
    if last is not None:
        rows = rows.filter(pl.col("key_position") > asked - last)
    legend = [
        line_entry(f"on text, mean (query {asked})", MEASURED),
        band_entry("most documents", MEASURED),
        line_entry("predicted: softmax of Tᵖ + Tᵖᵖ", PREDICTED),
    ]
    figure, panels = head_panels(
        chosen_heads(attention, heads), width, x_label=KEY_POSITION, y_label="attention", legend=legend
    )
    for head, axes in panels.items():
        curve = rows.filter(head=head)
        band(axes, curve["key_position"], curve["low"], curve["high"], MEASURED)
        line(axes, curve["key_position"], curve["mean"], MEASURED)
        line(axes, curve["key_position"], curve["predicted"], PREDICTED, linewidth=0.8)
    return figure
