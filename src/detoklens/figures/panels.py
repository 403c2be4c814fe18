"""Panel layout: a grid of equal panels, in inches, for 1 to 32 heads on a column or a page.

Positions are computed directly: with 32 panels, matplotlib's constrained layout takes longer than drawing the figure
three times. Space for tick labels is fixed; ticks are short enough to fit it (labels.short_number).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import polars as pl

from detoklens.figures import mpl, theme
from detoklens.figures.labels import short_number, text_inches, token_label
from detoklens.figures.marks import numbers, reference
from detoklens.wording import head_name

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def chosen_heads(table: pl.DataFrame, heads: Sequence[int] | None) -> list[int]:
    """The requested heads, or all heads of the table."""
    return list(heads) if heads is not None else sorted(table["head"].unique().to_list())


def drawn_queries(table: pl.DataFrame, queries: Sequence[int] | None) -> list[int]:
    """The requested query positions, or all of the table."""
    return list(queries) if queries is not None else sorted(table["query_position"].drop_nulls().unique().to_list())


def middle(queries: Sequence[int]) -> int:
    """The middle query position; 0 if there is none."""
    return queries[len(queries) // 2] if queries else 0


def stacked(axes: Axes, parts: Sequence[pl.Series], styles: Sequence[theme.Style], shift: float, height: float) -> None:
    """Draw one stacked bar per head, negative parts to the left of 0; an undefined part has no width."""
    if all(part.drop_nulls().is_empty() for part in parts):
        return
    right = left = np.zeros(len(parts[0]))
    for part, style in zip(parts, styles, strict=True):
        size = part.fill_null(0.0).to_numpy()
        places = [place + shift for place in range(len(part))]
        look: dict[str, Any] = {
            "color": style.colour,
            "hatch": style.hatch,
            "edgecolor": theme.INK,
            "linewidth": 0.3,
        }
        axes.barh(places, size, left=np.where(size < 0, left, right), height=height, **look)
        right, left = right + np.maximum(size, 0), left + np.minimum(size, 0)


ROW, LOWEST_ROW = 0.145, 0.108  # row height in inches: usual, and smallest with many heads
MANY_ROWS = 3.5  # height in inches that many rows share
NARROWEST = 0.6  # panel width in inches
PAIRS_PER_INCH = 2  # heads that still fit with several panels each


@dataclass(frozen=True)
class Measure:
    """One panel: the column it shows, its title, and its neutral value, if any."""

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
    gap: float = 0.0,
) -> tuple[Figure, list[Axes]]:
    """Panels side by side with one row per head, the first on top; `names` replace L0H0, L0H1 …

    `gap` inches between the names and the axis are left for other labels.
    """
    shown = list(names) if names is not None else [head_name(head) for head in heads]
    if own := theme.given_axes(len(titles)):
        for axes, title in zip(own, titles, strict=True):
            _dress_row(axes, title, shown, named=True)
        return _with_legend(own[0], legend), own
    total = theme.inches(width)
    lines = max(title.count("\n") + 1 for title in titles)
    margins = Margins(
        left=max((text_inches(name, theme.SMALL_SIZE) for name in shown), default=0.0) + gap + 2 * EDGE,
        top=legend_height(legend, total) + lines * LABEL * 0.65 + 0.06,
        bottom=LABEL,
        between_columns=3.5 * EDGE,
        between_rows=lines * LABEL * 0.8 + 0.05 + LABEL,
    )
    most = max(
        1, int((total - margins.left - margins.right + margins.between_columns) / (NARROWEST + margins.between_columns))
    )
    rows = ceil(len(titles) / most)
    columns = ceil(len(titles) / rows)
    panel_width = (total - margins.left - margins.right - (columns - 1) * margins.between_columns) / columns
    n_rows = max(1, len(heads))
    row_height = row or min(ROW, max(LOWEST_ROW, MANY_ROWS / n_rows))
    grid = Grid(columns, rows, panel_width, n_rows * row_height + 0.06)
    figure = theme.blank_figure(total, grid.height(margins))
    panels = [figure.add_axes(grid.place(index, total, margins)) for index in range(len(titles))]
    for index, (axes, title) in enumerate(zip(panels, titles, strict=True)):
        _dress_row(axes, title, shown, named=index % columns == 0)
    if gap:
        panels[0].tick_params(axis="y", pad=2 + 72 * gap)
    add_legend(figure, legend)
    return figure, panels


def points(axes: Axes, values: pl.Series, style: theme.Style, *, filled: bool = True, shift: float = 0.0) -> None:
    """Draw one point per row; none where the value is undefined."""
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
    """Draw one interval per row."""
    if low.drop_nulls().is_empty() or high.drop_nulls().is_empty():
        return
    places = [place + shift for place in range(len(low))]
    axes.hlines(places, numbers(low), numbers(high), color=style.colour, linewidth=1.2)


def auroc_range(panels: Sequence[Axes]) -> None:
    """Use the same range for every AUROC, so panels, figures and reports can be compared by eye."""
    for axes in panels:
        axes.set_xlim(-0.02, 1.02)


def in_order(table: pl.DataFrame, heads: Sequence[int]) -> pl.DataFrame:
    """One row per requested head, in order; nulls for heads missing from the table."""
    asked = pl.DataFrame({"head": pl.Series(list(heads), dtype=pl.Int32)})
    return asked.join(table, on="head", how="left", maintain_order="left")


def show_neutral(axes: Axes, measure: Measure) -> None:
    if measure.neutral is not None:
        reference(axes, x=measure.neutral)


def _dress_row(axes: Axes, title: str, names: Sequence[str], named: bool) -> None:
    axes.set_title(title, fontsize=theme.SMALL_SIZE if "\n" in title else theme.TEXT_SIZE)
    short_ticks(axes)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_yticks(range(len(names)), names if named else [""] * len(names))
    axes.tick_params(axis="y", length=0)
    axes.grid(color=theme.INK, alpha=theme.FAINT, linewidth=0.4)
    axes.set_axisbelow(True)


TALLEST = 9.3  # inches: page height without the caption
LABEL = 0.17  # inches for one line of text with its spacing
LONGEST_NAME = 20  # characters of a checkpoint's name
TICKS = 0.35  # inches for tick labels of six characters
EDGE = 0.06


@dataclass(frozen=True)
class Margins:
    """Inches around and between the panels of a grid."""

    left: float = LABEL + TICKS
    right: float = 2.5 * EDGE  # half of the last tick's label
    top: float = LABEL
    bottom: float = 2 * LABEL
    between_columns: float = TICKS + EDGE
    between_rows: float = LABEL + EDGE


@dataclass(frozen=True)
class Grid:
    """Number of columns and rows, and the size of a panel."""

    columns: int
    rows: int
    panel_width: float
    panel_height: float

    @staticmethod
    def fit(
        panels: int,
        total: float,
        margins: Margins,
        narrowest: float,
        proportion: float,
        multiple: int = 1,
        tallest: float = 2.2,
    ) -> Grid:
        """The grid with the widest panels that fits the height of a page, its rows about equally full."""
        most = int(
            (total - margins.left - margins.right + margins.between_columns) / (narrowest + margins.between_columns)
        )
        groups = ceil(panels / multiple)
        for columns in range(max(1, min(most // multiple, groups)), groups + 1):
            rows = ceil(groups / columns)
            across = ceil(groups / rows) * multiple
            width = (total - margins.left - margins.right - (across - 1) * margins.between_columns) / across
            grid = Grid(across, rows, width, min(width * proportion, tallest))
            if grid.height(margins) <= TALLEST or grid.panel_width < 0.5:
                break
        return grid

    def height(self, margins: Margins) -> float:
        return margins.top + self.rows * self.panel_height + (self.rows - 1) * margins.between_rows + margins.bottom

    def at_least(self, height: float, margins: Margins) -> Grid:
        """The grid with panels tall enough for a figure of at least this height."""
        return replace(self, panel_height=self.panel_height + max(0.0, height - self.height(margins)) / self.rows)

    def place(self, index: int, total: float, margins: Margins) -> tuple[float, float, float, float]:
        """Left, bottom, width and height of the n-th panel as fractions of the figure."""
        row, column = divmod(index, self.columns)
        tall = self.height(margins)
        left = margins.left + column * (self.panel_width + margins.between_columns)
        bottom = tall - margins.top - (row + 1) * self.panel_height - row * margins.between_rows
        return left / total, bottom / tall, self.panel_width / total, self.panel_height / tall

    def is_lowest(self, index: int, panels: int) -> bool:
        """Whether the n-th panel has no panel below it; those have tick labels."""
        return index + self.columns >= panels


def head_panels(heads: Sequence[int], width: theme.Width, **look: Any) -> tuple[Figure, dict[int, Axes]]:
    """One panel per head; `look` as in titled_panels."""
    figure, panels = titled_panels([head_name(head) for head in heads], width, **look)
    return figure, dict(zip(heads, panels, strict=True))


def titled_panels(
    titles: Sequence[str],
    width: theme.Width,
    *,
    x_label: str,
    y_label: str,
    legend: Sequence[Artist] = (),
    share_x: bool = True,
    share_y: bool = False,
    columns: int = 1,
    proportion: float = 0.62,
    tick_names: Sequence[str] = (),
) -> tuple[Figure, list[Axes]]:
    """Panels with one legend and shared axis labels; a row holds a multiple of `columns` panels."""
    if own := theme.given_axes(len(titles)):
        for axes, title in zip(own, titles, strict=True):
            _dress(axes, title, ticks_below=True)
            axes.set(xlabel=x_label, ylabel=y_label)
        return _with_legend(own[0], legend), own
    total = theme.inches(width)
    above = Margins.between_rows if share_x else Margins.between_rows + LABEL
    above_panels = legend_height(legend, total)
    margins = Margins(top=LABEL + above_panels, bottom=2 * LABEL + _name_height(tick_names), between_rows=above)
    grid = Grid.fit(max(1, len(titles)), total, margins, narrowest=1.1, proportion=proportion, multiple=columns)
    grid = grid.at_least(above_panels + text_inches(y_label, theme.TEXT_SIZE) + 2 * EDGE, margins)
    figure = theme.blank_figure(total, grid.height(margins))
    panels: list[Axes] = []
    for index, title in enumerate(titles):
        first = panels[0] if panels else None
        shared: dict[str, Any] = {"sharex": first if share_x else None, "sharey": first if share_y else None}
        axes = figure.add_axes(grid.place(index, total, margins), **shared)
        _dress(axes, title, ticks_below=not share_x or grid.is_lowest(index, len(titles)))
        panels.append(axes)
    add_labels(figure, x_label, y_label, margins, above_panels)
    add_legend(figure, legend)
    return figure, panels


def name_places(panels: Sequence[Axes], names: Sequence[str]) -> None:
    """Label the horizontal axes with vertical names instead of numbers."""
    shown = [token_label(name, LONGEST_NAME, space=" ") for name in names]
    for axes in panels:
        axes.set_xlim(-0.3, len(names) - 0.7)
        axes.set_xticks(range(len(names)), shown, rotation=90)


def _name_height(names: Sequence[str]) -> float:
    shown = [token_label(name, LONGEST_NAME, space=" ") for name in names]
    return max((text_inches(name, theme.SMALL_SIZE) for name in shown), default=0.0)


def add_labels(figure: Figure, x_label: str, y_label: str, margins: Margins, legend: float = 0.0) -> None:
    """Add one label for all horizontal and one for all vertical axes, centred on the panels and below the legend."""
    wide, tall = figure.get_size_inches()
    across = (margins.left + wide - margins.right) / 2
    highest = tall - legend - EDGE - text_inches(y_label, theme.TEXT_SIZE) / 2
    up = min((margins.bottom + tall - margins.top) / 2, highest)
    figure.supxlabel(x_label, x=across / wide, y=0.02 / tall, va="bottom", fontsize=theme.TEXT_SIZE)
    figure.supylabel(y_label, x=0.02 / wide, y=up / tall, ha="left", fontsize=theme.TEXT_SIZE)


def add_legend(figure: Figure, entries: Sequence[Artist]) -> None:
    """Add a legend in one or more lines along the top."""
    if not entries:
        return
    wide, tall = figure.get_size_inches()
    figure.legend(
        handles=list(entries),
        loc="upper left",
        bbox_to_anchor=(EDGE / wide, 1 - 0.03 / tall),
        ncols=_legend_columns(entries, wide),
        handlelength=2.6,
        columnspacing=1.2,
        labelspacing=0.35,
    )


def _with_legend(axes: Axes, entries: Sequence[Artist]) -> Figure:
    """The figure of given axes, which get the legend."""
    if entries:
        axes.legend(handles=list(entries))
    return cast("Figure", axes.figure)


def legend_height(entries: Sequence[Artist], total: float) -> float:
    """Height of the legend in inches."""
    return ceil(len(entries) / _legend_columns(entries, total)) * 0.112 + 0.04 if entries else 0.0


def _legend_columns(entries: Sequence[Artist], total: float) -> int:
    widest = max(text_inches(str(entry.get_label()), theme.SMALL_SIZE) for entry in entries)
    column = widest + 4.7 * theme.SMALL_SIZE / 72  # the line and the spacing on both sides of the text
    return max(1, min(len(entries), int((total - 2 * EDGE) / column)))


def _dress(axes: Axes, title: str, ticks_below: bool) -> None:
    narrow = axes.bbox.width / axes.figure.dpi < 1
    axes.set_title(title, fontsize=theme.SMALL_SIZE if narrow else theme.TEXT_SIZE)
    short_ticks(axes)
    axes.tick_params(labelbottom=ticks_below)
    axes.grid(axis="y", color=theme.INK, alpha=theme.FAINT, linewidth=0.4)


def short_ticks(axes: Axes) -> None:
    """Use as many ticks as fit the panel, each in a few characters."""
    wide, tall = axes.bbox.width / axes.figure.dpi, axes.bbox.height / axes.figure.dpi
    across, up = min(8, max(2, int(wide / 0.36))), min(5, max(2, int(tall / 0.25)))
    steps = [1, 2, 5, 10] if across > 2 else [1, 2, 3, 4, 5, 6, 8, 10]  # a narrow panel fits two ticks, not four
    axes.xaxis.set_major_locator(mpl.ticker.MaxNLocator(across, steps=steps))
    axes.yaxis.set_major_locator(mpl.ticker.MaxNLocator(up, steps=[1, 2, 5, 10]))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(mpl.ticker.FuncFormatter(short_number))
