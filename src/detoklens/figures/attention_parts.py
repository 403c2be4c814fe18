"""Where does attention go on real text, and where would it by position alone? First, far, recent, self."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from matplotlib.figure import Figure

from detoklens.figures import theme
from detoklens.figures.head_rows import head_rows, in_order
from detoklens.figures.marks import patch_entry
from detoklens.figures.position_curves import chosen_heads
from detoklens.figures.stacked_rows import stacked

PARTS = {"first": "position 0", "far": "far keys", "recent": "15 keys before the query", "self": "the query itself"}
STYLES = [theme.style_of(place) for place in range(len(PARTS))]


@theme.figure_function
def attention_parts(
    attention_agreement: pl.DataFrame,
    *,
    heads: Sequence[int] | None = None,
    query: int | None = None,
    width: theme.Width = "page",
) -> Figure:
    """Where does attention go, measured and predicted? At one query position, or the mean over those of the table."""
    asked = chosen_heads(attention_agreement, heads)
    rows = attention_agreement if query is None else attention_agreement.filter(query_position=query)
    means = in_order(rows.group_by("head").mean(), asked)
    where = "mean over query positions" if query is None else f"query {query}"
    legend = [patch_entry(label, style) for label, style in zip(PARTS.values(), STYLES, strict=True)]
    title = f"attention, {where}\nupper bar: on text; lower bar: predicted from position"
    figure, (axes,) = head_rows(asked, width, [title], legend=legend, row=0.24)
    for source, shift in (("measured", -0.2), ("predicted", 0.2)):
        stacked(axes, [means[f"{source}_{part}"] for part in PARTS], STYLES, shift, height=0.34)
    axes.set_xlim(0, 1)
    return figure
