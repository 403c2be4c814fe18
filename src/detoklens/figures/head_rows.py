"""One row a head, one panel a number: what head cards, AUROC and other figures with a value per head have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import polars as pl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from detoklens.figures import theme
from detoklens.figures.marks import numbers, reference
from detoklens.figures.panels import EDGE, LABEL, Grid, Room, add_legend, legend_height, short_ticks
from detoklens.figures.wording import text_inches
from detoklens.wording import head_name

ROW, LOWEST_ROW = 0.145, 0.108  # inches between two heads, and between two of many
MANY_ROWS = 3.5  # inches that rows of many heads take together
NARROWEST = 0.6  # inches of a panel


@dataclass(frozen=True)
class Measure:
    """One panel: the column it shows, its title, and the value that means nothing special, if there is one."""

    column: str
    title: str
    neutral: float | None = None


def head_rows(
    heads: Sequence[int],
    width: theme.Width,
    titles: Sequence[str],
    *,
    legend: Sequence[Artist] = (),
    names: Sequence[str] | None = None,
    row: float | None = None,
) -> tuple[Figure, list[Axes]]:
    """Panels side by side whose rows are heads, the first head on top; `names` replace L0H0, L0H1 …"""
    shown = list(names) if names is not None else [head_name(head) for head in heads]
    total = theme.inches(width)
    lines = max(title.count("\n") + 1 for title in titles)
    room = Room(
        left=max((text_inches(name, theme.SMALL_SIZE) for name in shown), default=0.0) + 2 * EDGE,
        top=legend_height(legend, total) + lines * LABEL * 0.8 + 0.05,
        bottom=LABEL,
        beside=3.5 * EDGE,
        above=lines * LABEL * 0.8 + 0.05 + LABEL,
    )
    most = max(1, int((total - room.left - room.right + room.beside) / (NARROWEST + room.beside)))
    rows = ceil(len(titles) / most)
    columns = ceil(len(titles) / rows)
    panel_width = (total - room.left - room.right - (columns - 1) * room.beside) / columns
    grid = Grid(columns, rows, panel_width, max(1, len(heads)) * (row or _row_height(len(heads))) + 0.06)
    figure = theme.ShownFigure(figsize=(total, grid.height(room)))
    panels = [figure.add_axes(grid.place(index, total, room)) for index in range(len(titles))]
    for index, (axes, title) in enumerate(zip(panels, titles, strict=True)):
        _dress(axes, title, shown, named=index % columns == 0)
    add_legend(figure, legend)
    return figure, panels


def _row_height(heads: int) -> float:
    return min(ROW, max(LOWEST_ROW, MANY_ROWS / max(1, heads)))


def points(axes: Axes, values: pl.Series, style: theme.Style, *, filled: bool = True, shift: float = 0.0) -> None:
    """One point a head, in the order of the rows; none where the value is undefined."""
    if values.drop_nulls().is_empty():
        return
    axes.plot(
        numbers(values),
        [place + shift for place in range(len(values))],
        linestyle="",
        marker=style.marker,
        color=style.colour,
        markerfacecolor=style.colour if filled else "none",
        markeredgewidth=0.7,
    )


def intervals(axes: Axes, low: pl.Series, high: pl.Series, style: theme.Style, shift: float = 0.0) -> None:
    """One bar a head from low to high."""
    if low.drop_nulls().is_empty() or high.drop_nulls().is_empty():
        return
    places = [place + shift for place in range(len(low))]
    axes.hlines(places, numbers(low), numbers(high), color=style.colour, linewidth=1.2)


def auroc_range(panels: Sequence[Axes]) -> None:
    """The same range wherever an AUROC is drawn, so that panels, figures and reports can be compared by eye."""
    for axes in panels:
        axes.set_xlim(-0.02, 1.02)


def in_order(table: pl.DataFrame, heads: Sequence[int]) -> pl.DataFrame:
    """One row for each head as asked; a head that the table lacks has nulls."""
    asked = pl.DataFrame({"head": pl.Series(list(heads), dtype=pl.Int32)})
    return asked.join(table, on="head", how="left", maintain_order="left")


def show_neutral(axes: Axes, measure: Measure) -> None:
    if measure.neutral is not None:
        reference(axes, x=measure.neutral)


def _dress(axes: Axes, title: str, names: Sequence[str], named: bool) -> None:
    axes.set_title(title, fontsize=theme.SMALL_SIZE if "\n" in title else theme.TEXT_SIZE)
    short_ticks(axes)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_yticks(range(len(names)), names if named else [""] * len(names))
    axes.tick_params(axis="y", length=0)
    axes.grid(color=theme.INK, alpha=theme.FAINT, linewidth=0.4)
    axes.set_axisbelow(True)
