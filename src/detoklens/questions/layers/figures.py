"""Rank of a word's twin by layer, attention to the previous piece, and ablations."""

from __future__ import annotations

from math import ceil

import numpy as np
import polars as pl
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from detoklens.figures import theme
from detoklens.figures.labels import short_number
from detoklens.figures.marks import band, line, line_entry, logarithmic_y, point_entry
from detoklens.figures.panels import titled_panels
from detoklens.questions.twins.figures import BASES, KINDS

RING = theme.Style("#d55e00", "", "o", "")
MOST_TICKS = 16
TICK, TICK_BEFORE_MLP = 0.2, 0.3  # inches from one head's number to the next, and to the MLP
NARROW = 5.0  # inches


def layers(twins_by_layer: pl.DataFrame, *, width: theme.Width = "page") -> Figure:
    """Median rank of the twin after every layer."""
    figure, (axes,) = titled_panels(
        [_counted(twins_by_layer)],
        width,
        x_label="layer",
        y_label="median rank of the twin",
        legend=[line_entry(*KINDS[name], marker=True) for name in BASES],
        proportion=0.4,
    )
    for condition in BASES:
        style = KINDS[condition][1]
        rows = twins_by_layer.filter(condition=condition).sort("layer")
        band(axes, rows["layer"], rows["median_rank_low"], rows["median_rank_high"], style)
        line(axes, rows["layer"], rows["median_rank"], style, marker=style.marker)
    ends = [twins_by_layer[name].drop_nulls() for name in ("median_rank", "median_rank_low", "median_rank_high")]
    logarithmic_y(axes, pl.concat(ends))
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=12))
    shown = sorted(twins_by_layer["layer"].unique().to_list())
    axes.set_xticks(shown[:: max(1, len(shown) // MOST_TICKS)])
    return figure


def _counted(table: pl.DataFrame) -> str:
    words, candidates = (table[name].head(1).to_list() or [0] for name in ("words", "candidates"))
    return f"{words[0]:,} words, {candidates[0]:,} candidates"


def component_map(twins_by_component: pl.DataFrame, *, width: theme.Width = "page") -> Figure:
    """Attention of each head to the previous piece, and the rank lost by ablating each head and MLP."""
    attention, needed = _grid(twins_by_component, "attention"), np.log(_grid(twins_by_component, "needed"))
    after = twins_by_component["after"].head(1).to_list() or [0]
    brief = theme.inches(width) < NARROW
    back = "attention back" if brief else "attention to the previous piece"
    lost = "ablated" if brief else f"rank ratio when ablated, after layer {after[0]}"
    titles = [f"{back}: {_range(attention)}", f"{lost}: {_range(np.exp(needed), '×')}"]
    figure, panels = titled_panels(
        titles,
        width,
        x_label="head, and the MLP",
        y_label="layer",
        legend=[point_entry("needed (lighter is more)", RING, filled=False)],
        columns=2,
        proportion=min(1.0, max(0.3, attention.shape[0] / max(1, attention.shape[1]))),
    )
    for axes, values in zip(panels, (attention, needed), strict=True):
        _draw_map(axes, values)
        _ring(axes, twins_by_component, values)
    return figure


def _grid(table: pl.DataFrame, column: str) -> Float[np.ndarray, "layer head_and_mlp"]:
    """Values by layer and head, with the MLP in the last column; NaN where unknown."""
    rows = table.select("layer", "head", column).rows()
    layers = 1 + max((layer for layer, _, _ in rows), default=0)
    heads = 1 + max((head for _, head, _ in rows if head is not None), default=0)
    grid = np.full((layers, heads + 1), np.nan)
    for layer, head, value in rows:
        grid[layer, heads if head is None else head] = np.nan if value is None else value
    return grid


def _range(values: Float[np.ndarray, "layer head_and_mlp"], sign: str = "") -> str:
    if not np.isfinite(values).any():
        return "unknown"
    return f"{sign}{short_number(float(f'{np.nanmin(values):.2g}'))}…{short_number(float(f'{np.nanmax(values):.2g}'))}"


def _draw_map(axes: Axes, values: Float[np.ndarray, "layer head_and_mlp"]) -> None:
    n_layers, n_columns = values.shape
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    if np.isfinite(values).any():
        axes.imshow(values, cmap=theme.SEQUENTIAL, aspect="auto", interpolation="nearest")
    axes.set_xticks(*_columns(n_columns, axes.bbox.width / axes.figure.dpi))
    axes.set_yticks(range(0, n_layers, max(1, n_layers // MOST_TICKS)))
    axes.tick_params(length=0)


def _columns(n_columns: int, inches: float) -> tuple[list[int], list[str]]:
    """Ticks for the MLP and for as many heads as fit without touching it."""
    column, mlp = inches / n_columns, n_columns - 1
    step = max(1, ceil(TICK / column))
    heads = [head for head in range(0, mlp, step) if (mlp - head) * column >= TICK_BEFORE_MLP]
    return [*heads, mlp], [*map(str, heads), "MLP"]


def _ring(axes: Axes, table: pl.DataFrame, values: Float[np.ndarray, "layer head_and_mlp"]) -> None:
    mlp = values.shape[1] - 1
    places = [(mlp if head is None else head, layer) for head, layer in table.filter("matters")["head", "layer"].rows()]
    seen = [(column, layer) for column, layer in places if np.isfinite(values[layer, column])]
    if seen:
        x, y = zip(*seen, strict=True)
        axes.plot(x, y, linestyle="", marker="o", fillstyle="none", color=RING.colour)
