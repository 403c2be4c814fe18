"""Variance of position embeddings, the switch at position 0, and the last query positions."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from matplotlib.figure import Figure

from detoklens.figures import theme
from detoklens.figures.labels import KEY_POSITION
from detoklens.figures.marks import line, line_entry, numbers, point_entry, reference
from detoklens.figures.panels import chosen_heads, chosen_queries, head_rows, in_order, intervals, points, titled_panels
from detoklens.wording import head_name

USUAL, OUTLIER = theme.SERIES[0], theme.SERIES[1]
FIRST, NEXT = theme.SERIES[0], theme.SERIES[1]
LAST = theme.Style(theme.INK, "solid", "o", "")
PANELS = {"Tᵖ without LayerNorm": "_without_norm", "Tᵖ with LayerNorm": ""}
FEW = 10
VERDICTS = {True: " (odd)", False: "", None: " (untestable)"}


def position_variance(position_variance: pl.DataFrame, *, width: theme.Width = "page") -> Figure:
    """Variance of all, the first ten and the last ten position embeddings."""
    rows = position_variance.sort("position")
    parts = {"all positions": rows, f"first {FEW}": rows.head(FEW), f"last {FEW}": rows.tail(FEW)}
    figure, panels = titled_panels(
        list(parts),
        width,
        x_label="position",
        y_label="variance of the embedding",
        legend=[point_entry("outlier", OUTLIER)] if rows["outlier"].any() else [],
        share_x=False,
    )
    for axes, part in zip(panels, parts.values(), strict=True):
        line(axes, part["position"], part["variance"], USUAL, marker=USUAL.marker if len(part) <= FEW else "")
        outliers = part.filter("outlier")
        if outliers.height:
            x, y = numbers(outliers["position"]), numbers(outliers["variance"])
            axes.plot(x, y, linestyle="", marker=OUTLIER.marker, color=OUTLIER.colour)
        reference(axes, y=0)  # then the margin at the top is a share of the whole height
        axes.set_ylim(bottom=0)
    return figure


def first_position(switch: pl.DataFrame, *, heads: Sequence[int] | None = None, width: theme.Width = "page") -> Figure:
    """Tᵖ at position 0 and the mean of the next ten positions, without and with LayerNorm."""
    asked = chosen_heads(switch, heads)
    rows = in_order(switch, asked)
    legend = [point_entry("position 0", FIRST), point_entry("mean of the next ten positions", NEXT)]
    figure, panels = head_rows(asked, width, list(PANELS), legend=legend)
    for axes, suffix in zip(panels, PANELS.values(), strict=True):
        first, following = rows[f"first{suffix}"], rows[f"next{suffix}"]
        intervals(axes, first, following, theme.Style(theme.INK, "solid", "", ""))
        points(axes, following, NEXT)
        points(axes, first, FIRST)
        reference(axes, x=0.0)
    return figure


def last_positions(
    last_queries: pl.DataFrame,
    undertrained: pl.DataFrame | None = None,
    *,
    heads: Sequence[int] | None = None,
    width: theme.Width = "page",
) -> Figure:
    """Tᵖᵖ without LayerNorm for the last five query positions."""
    queries, asked = chosen_queries(last_queries, None), chosen_heads(last_queries, heads)
    styles = [*(theme.style_of(place) for place in range(len(queries) - 1)), LAST][: len(queries)]
    verdicts = dict(undertrained.select("head", "undertrained").iter_rows()) if undertrained is not None else {}
    figure, panels = titled_panels(
        [head_name(head) + VERDICTS[verdicts.get(head, False)] for head in asked],
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
