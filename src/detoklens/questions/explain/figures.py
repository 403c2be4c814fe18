"""Attention in a text with the terms that explain it: a matrix per head, or its links as bars."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
import polars as pl
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, PowerNorm, to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from detoklens.figures import theme
from detoklens.figures.labels import KEY, QUERY, text_inches, token_label
from detoklens.figures.marks import numbers, patch_entry, point_entry
from detoklens.figures.panels import EDGE, LABEL, TALLEST, Grid, Margins, add_labels, chosen_heads, head_rows, points
from detoklens.wording import head_name, term_symbol

MOST_LINKS = 5  # per head
MOST_BARS = 60  # per figure: a full page
LONGEST = 10  # characters of a token's name
CELL, LARGEST_CELL = 0.092, 0.24  # inches: enough for a name, and before cells look coarse
NARROW_CELL = 0.052  # inches, with every other name one line lower
KEY_HEIGHT = LABEL  # inches for the colour key
ATTENTION, WITHOUT = theme.SERIES[0], theme.SERIES[1]
SHADES = LinearSegmentedColormap.from_list("attention", [to_rgba(ATTENTION.colour, 0), to_rgba(ATTENTION.colour, 1)])
SHADING = PowerNorm(0.5, 0, 1)  # attention of 0.01 is still visible


@dataclass(frozen=True)
class Layout:
    """The panels of the matrices, their margins, and whether every other name is one line lower."""

    grid: Grid
    margins: Margins
    staggered: bool


def explain(
    explanation: pl.DataFrame,
    links: pl.DataFrame,
    *,
    heads: Sequence[int] | None = None,
    top: int = MOST_LINKS,
    width: theme.Width = "page",
) -> Figure:
    """Draw matrices if all names are legible, else the links as bars."""
    asked = chosen_heads(explanation, heads)
    shown = links.filter(pl.col("head").is_in(asked)).group_by("head", maintain_order=True).head(top)
    texts = explanation.unique("query_position").sort("query_position")["query_text"]
    names = [token_label(text, LONGEST) for text in texts]
    layout = _layout(len(asked), names, _widest_label(shown), theme.inches(width))
    if layout is None:
        return _bars(asked, shown, width)
    return _matrices(asked, explanation, shown, names, layout, theme.inches(width))


def _layout(panels: int, names: Sequence[str], label: float, total: float) -> Layout | None:
    """Leave space for every token's name; None if names would be too small."""
    name = max((text_inches(name, theme.SMALL_SIZE) for name in names), default=0.0) + EDGE
    for staggered, smallest in ((False, CELL), (True, NARROW_CELL)):
        margins = Margins(
            left=LABEL + name,
            right=label + EDGE,
            top=LABEL + KEY_HEIGHT,
            bottom=LABEL + name * (2 if staggered else 1),
            between_columns=label + EDGE,
        )
        grid = _grid(panels, max(1, len(names)), total, margins, smallest)
        if grid is not None:
            return Layout(grid, margins, staggered)
    return None


def _grid(panels: int, tokens: int, total: float, margins: Margins, smallest: float) -> Grid | None:
    """Rows of about equal length and cells as large as possible; None if they would be too small."""
    across = total - margins.left - margins.right + margins.between_columns
    most = min(panels, int(across / (tokens * smallest + margins.between_columns)))
    if most < 1:
        return None
    rows = ceil(panels / most)
    columns = ceil(panels / rows)
    tall = ((TALLEST - margins.top - margins.bottom + margins.between_rows) / rows - margins.between_rows) / tokens
    wide = (across / columns - margins.between_columns) / tokens
    cell = min(LARGEST_CELL, wide, tall)
    return Grid(columns, rows, tokens * cell, tokens * max(cell, CELL)) if cell >= smallest and tall >= CELL else None


def _widest_label(links: pl.DataFrame) -> float:
    """Width in inches of the longest row of terms next to a matrix."""
    labels = links.group_by("head", "query_position").agg(pl.col("term").drop_nulls())["term"]
    return max((text_inches(_label(terms), theme.SMALL_SIZE) for terms in labels), default=0.0) + EDGE


def _label(terms: Sequence[str]) -> str:
    return " ".join(term_symbol(term) for term in terms)


def _matrices(
    heads: Sequence[int],
    explanation: pl.DataFrame,
    links: pl.DataFrame,
    names: Sequence[str],
    layout: Layout,
    total: float,
) -> Figure:
    grid, margins = layout.grid, layout.margins
    figure = theme.blank_figure(total, grid.height(margins))
    for index, head in enumerate(heads):
        axes = figure.add_axes(grid.place(index, total, margins))
        axes.set_title(head_name(head))
        attention = _matrix(explanation.filter(head=head), len(names))
        ends = _row_ends(explanation.filter(head=head), len(names))
        _draw_attention(axes, attention, ends)
        _frame_links(axes, links.filter(head=head).drop_nulls("attention"), ends)
        _name_tokens(axes, names, index % grid.columns == 0, grid.is_lowest(index, len(heads)), layout)
    used = margins.left + grid.columns * (grid.panel_width + margins.between_columns) - margins.between_columns
    add_labels(figure, KEY, QUERY, Margins(**{**vars(margins), "right": total - used}), legend=KEY_HEIGHT)
    _add_colour_key(figure)
    return figure


def _matrix(rows: pl.DataFrame, size: int) -> Float[np.ndarray, "query key"]:
    """Attention by query and key; NaN for keys that are not visible."""
    attention = np.full((size, size), np.nan)
    attention[rows["query_position"].to_numpy(), rows["key_position"].to_numpy()] = numbers(rows["attention"])
    return attention


def _row_ends(rows: pl.DataFrame, size: int) -> list[int]:
    """The end of each row: the query itself, or the last key in a bidirectional model."""
    ahead = len(rows) and bool((rows["key_position"] > rows["query_position"]).any())
    return [size] * size if ahead else list(range(1, size + 1))


def _draw_attention(axes: Axes, attention: Float[np.ndarray, "query key"], ends: Sequence[int]) -> None:
    size = len(attention)
    axes.spines[:].set_visible(False)
    axes.set(xlim=(-0.5, size - 0.5), ylim=(size - 0.5, -0.5))
    if np.isfinite(attention).any():
        axes.imshow(attention, cmap=SHADES, norm=SHADING, aspect="auto", interpolation="nearest")
    steps = np.arange(size).repeat(2) + np.tile([-0.5, 0.5], size)  # the border of the visible keys
    look: dict[str, Any] = {"color": theme.INK, "alpha": theme.FAINT, "linewidth": 0.5, "label": theme.REFERENCE}
    axes.plot([-0.5, *np.asarray(ends).repeat(2) - 0.5, -0.5, -0.5], [-0.5, *steps, size - 0.5, -0.5], **look)


def _frame_links(axes: Axes, links: pl.DataFrame, ends: Sequence[int]) -> None:
    """Frame each link and list the terms of a row's links at its end, in key order."""
    for (query,), row in links.sort("key_position").group_by("query_position", maintain_order=True):
        keys = row["key_position"].to_list()
        for key in keys:
            frame = Rectangle((key - 0.5, query - 0.5), 1, 1, fill=False, edgecolor=theme.INK, linewidth=0.8)
            axes.add_patch(frame).set_clip_on(False)
        label = _label(row["term"].drop_nulls().to_list())
        if label and keys[-1] < ends[query] - 1:
            axes.hlines(query, keys[-1] + 0.5, ends[query] - 0.5, color=theme.INK, linewidth=0.4, alpha=theme.SOFT)
        axes.annotate(
            label,
            (ends[query] - 0.5, query),
            (2, 0),
            textcoords="offset points",
            va="center",
            fontsize=theme.SMALL_SIZE,
        )


def _name_tokens(axes: Axes, names: Sequence[str], left: bool, below: bool, layout: Layout) -> None:
    places, nothing = range(len(names)), [""] * len(names)
    axes.set_yticks(places, names if left else nothing)
    axes.tick_params(length=0)
    if not layout.staggered:
        axes.set_xticks(places, names if below else nothing, rotation=90)
        return
    lower = (layout.margins.bottom - LABEL) / 2 * 72  # points: every other name is one line lower
    axes.set_xticks(places[::2], (names if below else nothing)[::2], rotation=90)
    axes.set_xticks(places[1::2], (names if below else nothing)[1::2], rotation=90, minor=True)
    axes.tick_params(axis="x", which="minor", length=lower if below else 0, width=0.3, labelsize=theme.SMALL_SIZE)


def _add_colour_key(figure: Figure) -> None:
    wide, tall = figure.get_size_inches()
    none, everything = "no attention", "all of a token's attention"
    left = 2 * EDGE + text_inches(none, theme.SMALL_SIZE)
    axes = figure.add_axes((left / wide, 1 - 0.13 / tall, 0.6 / wide, 0.09 / tall), label="colour key")
    axes.imshow(np.linspace(0, 1, 64)[None], cmap=SHADES, norm=SHADING, aspect="auto")
    axes.set_axis_off()
    look: dict[str, Any] = {"va": "center", "fontsize": theme.SMALL_SIZE, "transform": axes.transAxes}
    axes.text(-0.06, 0.5, none, ha="right", **look)
    axes.text(1.06, 0.5, everything, ha="left", **look)


def _bars(heads: Sequence[int], links: pl.DataFrame, width: theme.Width) -> Figure:
    """One bar per link, with its attention without its term."""
    each = max(1, MOST_BARS // max(1, len(heads)))
    by_head = [links.filter(head=head).head(each) for head in heads]
    rows = pl.concat([links.clear(), *by_head])
    names = [_link_name(link) for link in rows.iter_rows(named=True)] or [head_name(head) for head in heads] or ["–"]
    legend = [patch_entry("attention of the link", ATTENTION), point_entry("without the term at its end", WITHOUT)]
    figure, (axes,) = head_rows(range(len(names)), width, ["token → attended to"], legend=legend, names=names)
    if rows["attention"].drop_nulls().is_empty():
        return figure
    axes.barh(range(len(rows)), numbers(rows["attention"]), height=0.7, color=ATTENTION.colour)
    points(axes, rows["without_term"], WITHOUT)
    for place, (attention, term) in enumerate(rows.select("attention", "term").iter_rows()):
        if term is not None:
            axes.annotate(
                _label([term]), (attention, place), (4, 0), textcoords="offset points", va="center",
                fontsize=theme.SMALL_SIZE,
            )  # fmt: skip
    axes.set_xlim(0, 1.15)
    return figure


def _link_name(link: dict[str, Any]) -> str:
    """`L0H7  ␣sapiens 12 → Homo 11`."""
    query, key = (
        f"{token_label(link[f'{role}_text'], LONGEST)} {link[f'{role}_position']}" for role in ("query", "key")
    )
    return f"{head_name(link['head'])}  {query} → {key}"
