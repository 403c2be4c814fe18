"""Attention on text and from positions alone: over all keys, the nearest keys, and by region."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from matplotlib.figure import Figure

from detoklens.figures import theme
from detoklens.figures.labels import KEY_POSITION, band_name
from detoklens.figures.marks import band, band_entry, line, line_entry, patch_entry
from detoklens.figures.panels import chosen_heads, chosen_queries, head_panels, head_rows, in_order, middle, stacked

MEASURED, PREDICTED = theme.SERIES[0], theme.SERIES[1]
PARTS = {
    "first": "position 0",
    "far": "far keys",
    "recent": "15 keys before the query",
    "self": "the query itself",
    "next": "15 keys after it",
}


def attention(
    attention: pl.DataFrame,
    *,
    heads: Sequence[int] | None = None,
    query: int | None = None,
    last: int | None = None,
    band_share: float | None = None,
    width: theme.Width = "page",
) -> Figure:
    """Draw attention by key at one query position (the middle one by default), for all or the `last` keys."""
    asked = query if query is not None else middle(chosen_queries(attention, None))
    rows = attention.filter(query_position=asked).sort("head", "key_position")
    if last is not None:
        rows = rows.filter((pl.col("key_position") - asked).abs() < last)
    legend = [
        line_entry(f"on text, mean (query {asked})", MEASURED),
        band_entry(band_name("documents", band_share), MEASURED),
        line_entry("predicted by position alone", PREDICTED),
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


def attention_parts(
    attention_agreement: pl.DataFrame,
    *,
    heads: Sequence[int] | None = None,
    query: int | None = None,
    width: theme.Width = "page",
) -> Figure:
    """Draw attention by region, at one query position or as the mean over all."""
    asked = chosen_heads(attention_agreement, heads)
    rows = attention_agreement if query is None else attention_agreement.filter(query_position=query)
    means = in_order(rows.group_by("head").mean(), asked)
    where = "mean over query positions" if query is None else f"query {query}"
    parts = [part for part in PARTS if f"measured_{part}" in means.columns]
    styles = [theme.style_of(place) for place in range(len(parts))]
    legend = [patch_entry(PARTS[part], style) for part, style in zip(parts, styles, strict=True)]
    title = f"attention, {where}\nupper bar: on text; lower bar: predicted from position"
    figure, (axes,) = head_rows(asked, width, [title], legend=legend, row=0.24)
    for source, shift in (("measured", -0.2), ("predicted", 0.2)):
        stacked(axes, [means[f"{source}_{part}"] for part in parts], styles, shift, height=0.34)
    axes.set_xlim(0, 1)
    return figure
