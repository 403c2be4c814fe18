"""Does the last query position depart from those before it? T^pp without LayerNorm for the last five."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from matplotlib.figure import Figure

from detoklens.figures import theme
from detoklens.figures.marks import line, line_entry
from detoklens.figures.panels import titled_panels
from detoklens.figures.position_curves import chosen_heads, chosen_queries
from detoklens.figures.wording import KEY_POSITION, head_name

LAST = theme.Style(theme.INK, "solid", "o", "")


@theme.figure_function
def last_positions(
    last_queries: pl.DataFrame,
    undertrained: pl.DataFrame | None = None,
    *,
    heads: Sequence[int] | None = None,
    width: theme.Width = "page",
) -> Figure:
    """What do the last query positions look for, LayerNorm left out?"""
    queries, asked = chosen_queries(last_queries, None), chosen_heads(last_queries, heads)
    styles = [*(theme.style_of(place) for place in range(len(queries) - 1)), LAST][: len(queries)]
    odd = set(undertrained.filter("undertrained")["head"]) if undertrained is not None else set()
    figure, panels = titled_panels(
        [head_name(head) + (" (odd)" if head in odd else "") for head in asked],
        width,
        x_label=KEY_POSITION,
        y_label="Tᵖᵖ without LayerNorm",
        legend=[line_entry(f"query {query}", style) for query, style in zip(queries, styles, strict=True)],
    )
    for head, axes in zip(asked, panels, strict=True):
        for query, style in zip(queries, styles, strict=True):
            curve = last_queries.filter(head=head, query_position=query).sort("key_position")
            line(axes, curve["key_position"], curve["comparison"], style, linewidth=1.2 if style is LAST else 0.8)
    return figure
