"""Tᵉᵉ of random tokens: one image per head, with and without LayerNorm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np
import polars as pl
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from detoklens.figures import theme
from detoklens.figures.labels import KEY, QUERY, short_number, token_name
from detoklens.figures.panels import EDGE, LABEL, TALLEST, Grid, Margins, add_labels, chosen_heads
from detoklens.wording import head_name

TOKEN = 0.1  # inches for a token's name
LONGEST = 12  # letters of a token's name
LETTER = 0.056  # inches
NARROWEST = 0.95  # inches of a panel
MOST_UNNAMED = 2  # tokens between two named ones
PLAIN = Margins(
    left=LABEL + EDGE, top=3 * LABEL, bottom=LABEL + EDGE, between_columns=EDGE * 1.5, between_rows=2 * LABEL
)


def heatmap(
    heatmap: pl.DataFrame,
    heatmap_tokens: pl.DataFrame | None = None,
    *,
    heads: Sequence[int] | None = None,
    width: theme.Width = "page",
) -> Figure:
    """Draw Tᵉᵉ of all pairs of the sampled tokens: white is 0, and all heads share one colour range.

    Panels without LayerNorm share their own, since σ changes the unit.
    """
    variants = sorted(heatmap["layer_norm"].unique().to_list(), reverse=True)
    panels = [(head, variant) for head in chosen_heads(heatmap, heads) for variant in variants]
    total = theme.inches(width)
    names, limits = (
        _names(heatmap_tokens),
        {variant: _limit(heatmap.filter(layer_norm=variant)) for variant in variants},
    )
    margins, grid = _layout(len(panels), len(variants), total, names)
    figure = theme.blank_figure(total, grid.height(margins))
    for index, (head, variant) in enumerate(panels):
        axes = figure.add_axes(grid.place(index, total, margins))
        _draw_panel(axes, heatmap.filter(head=head, layer_norm=variant), head, variant, limits[variant])
        if names:
            every = ceil(len(names) * TOKEN / grid.panel_width)
            _name_tokens(axes, names, every, index % grid.columns == 0, grid.is_lowest(index, len(panels)))
    add_labels(figure, KEY, QUERY, margins, legend=LABEL)
    _add_colour_key(figure, limits)
    return figure


def _names(tokens: pl.DataFrame | None) -> list[str]:
    if tokens is None:
        return []
    drawn = tokens.sort("place").select("token", "token_id")
    return [token_name(text, token, LONGEST) for text, token in drawn.iter_rows()]


def _layout(panels: int, variants: int, total: float, names: list[str]) -> tuple[Margins, Grid]:
    """Panels wide enough to name every token, or every second or third; else as many per row as fit."""
    space = LABEL + EDGE + LETTER * max(map(len, names), default=0)
    margins = replace(PLAIN, left=space, bottom=space) if names else PLAIN
    look: dict[str, Any] = {"proportion": 1.0, "multiple": variants, "tallest": total}
    for every in range(1, MOST_UNNAMED + 2) if names else ():
        wanted = len(names) * TOKEN / every
        grid = Grid.fit(max(1, panels), total, margins, narrowest=max(NARROWEST, wanted), **look)
        if grid.panel_width >= wanted and grid.height(margins) <= TALLEST:
            return margins, grid
    return margins, Grid.fit(max(1, panels), total, margins, narrowest=NARROWEST, **look)


def _limit(rows: pl.DataFrame) -> float:
    """The largest |score|: the end of the colour range on both sides of 0."""
    sizes = rows["score"].cast(pl.Float64).abs().fill_nan(None).drop_nulls().to_numpy()
    return float(sizes.max(initial=0.0)) or 1.0


def _draw_panel(axes: Axes, rows: pl.DataFrame, head: int, layer_norm: bool, limit: float) -> None:
    scores = _matrix(rows)
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    title = head_name(head) if layer_norm else "no LN"  # next to the head's panel with LayerNorm
    if np.isfinite(scores).any():
        title += f"\n{short_number(_rounded(np.nanmin(scores)))}…{short_number(_rounded(np.nanmax(scores)))}"
        look: dict[str, Any] = {"aspect": "auto", "interpolation": "nearest", "vmin": -limit, "vmax": limit}
        axes.imshow(scores, cmap=theme.DIVERGING, **look)
    axes.set_title(title, fontsize=theme.SMALL_SIZE, linespacing=1.1)


def _matrix(rows: pl.DataFrame) -> Float[np.ndarray, "query key"]:
    """Scores by row and column of the heatmap, undefined ones as NaN."""
    size = 1 + max(int(rows["query_place"].max() or 0), int(rows["key_place"].max() or 0)) if rows.height else 1  # type: ignore[arg-type]
    scores = np.full((size, size), np.nan)
    scores[rows["query_place"].to_numpy(), rows["key_place"].to_numpy()] = rows["score"].cast(pl.Float64).to_numpy()
    return scores


def _rounded(value: float) -> float:
    return float(f"{value:.2g}") if abs(value) < 10 else float(round(value))


def _name_tokens(axes: Axes, names: list[str], every: int, left: bool, below: bool) -> None:
    """Name every token, or every `every`-th."""
    places, named, size = range(0, len(names), every), names[::every], theme.SMALL_SIZE
    if left:
        axes.set_yticks(places, named, fontsize=size)
    if below:
        axes.set_xticks(places, named, fontsize=size, rotation=90)
    axes.tick_params(length=0)


def _add_colour_key(figure: Figure, limits: dict[bool, float]) -> None:
    ends = [short_number(_rounded(limit)) for limit in limits.values()]
    low, high = (" (no LN ".join(f"{sign}{end}" for end in ends) + ")" * (len(ends) - 1) for sign in ("−", ""))
    wide, tall = figure.get_size_inches()
    place = (1.1 / wide, 1 - 0.13 / tall, 0.6 / wide, 0.09 / tall)
    axes = figure.add_axes(place, label="colour key")
    axes.imshow(np.linspace(0, 1, 64)[None], cmap=theme.DIVERGING, aspect="auto")
    axes.set_axis_off()
    look: dict[str, Any] = {"va": "center", "fontsize": theme.SMALL_SIZE, "transform": axes.transAxes}
    axes.text(-0.06, 0.5, low, ha="right", **look)
    axes.text(1.06, 0.5, f"{high}: score (Tᵉᵉ), white is 0", ha="left", **look)
