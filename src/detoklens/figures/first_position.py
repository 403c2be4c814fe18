"""How much of position 0's jump in T^p is LayerNorm's? Position 0 and the ten after it, without and with LayerNorm."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from matplotlib.figure import Figure

from detoklens.figures import theme
from detoklens.figures.head_rows import head_rows, in_order, intervals, points
from detoklens.figures.marks import point_entry, reference
from detoklens.figures.position_curves import chosen_heads

FIRST, NEXT = theme.SERIES[0], theme.SERIES[1]
PANELS = {"Tᵖ without LayerNorm": "_without_norm", "Tᵖ with LayerNorm": ""}


@theme.figure_function
def first_position(switch: pl.DataFrame, *, heads: Sequence[int] | None = None, width: theme.Width = "page") -> Figure:
    """How much of position 0's jump in T^p is LayerNorm's?"""
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
