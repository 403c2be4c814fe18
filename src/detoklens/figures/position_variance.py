"""Which position embeddings have an exceptional variance? All of them, the first ten, the last ten."""

from __future__ import annotations

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from detoklens.figures import theme
from detoklens.figures.marks import line, numbers, point_entry
from detoklens.figures.panels import titled_panels

USUAL, OUTLIER = theme.SERIES[0], theme.SERIES[1]
FEW = 10


@theme.figure_function
def position_variance(position_variance: pl.DataFrame, *, width: theme.Width = "page") -> Figure:
    """Which position embeddings have an exceptional variance?"""
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
        _draw_part(axes, part)
    return figure


def _draw_part(axes: Axes, part: pl.DataFrame) -> None:
    few = len(part) <= FEW
    line(axes, part["position"], part["variance"], USUAL, **({"marker": USUAL.marker} if few else {}))
    outliers = part.filter(pl.col("outlier"))
    if outliers.height:
        x, y = numbers(outliers["position"]), numbers(outliers["variance"])
        axes.plot(x, y, linestyle="", marker=OUTLIER.marker, color=OUTLIER.colour)
    axes.set_ylim(bottom=0)
