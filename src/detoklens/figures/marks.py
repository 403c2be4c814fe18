"""Marks in a panel (lines with gaps at undefined values, bands, points) and their legend entries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from jaxtyping import Num

from detoklens.figures import mpl, theme
from detoklens.figures.labels import short_number

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

MANY_POINTS = 10_000  # from here on, points are drawn smaller


def numbers(values: pl.Series) -> Num[np.ndarray, " row"]:
    """A column as floats; null becomes NaN."""
    return values.cast(pl.Float64).to_numpy()


def line(axes: Axes, x: pl.Series, y: pl.Series, style: theme.Style, **more: Any) -> None:
    """Draw a line through the rows; draw nothing if every value is undefined."""
    if y.drop_nulls().is_empty():
        return
    look = {"color": style.colour, "linestyle": style.line, "marker": style.marker if len(y) == 1 else ""}
    axes.plot(numbers(x), numbers(y), **(look | more))  # a marker, since a line through one point is invisible


def band(axes: Axes, x: pl.Series, low: pl.Series, high: pl.Series, style: theme.Style) -> None:
    """Fill the area between two columns, faint enough to draw a line over it."""
    if low.drop_nulls().is_empty() or high.drop_nulls().is_empty():
        return
    axes.fill_between(numbers(x), numbers(low), numbers(high), color=style.colour, alpha=0.22, linewidth=0)


def cloud(axes: Axes, x: pl.Series, y: pl.Series) -> None:
    """Scatter many points, rasterized in vector files."""
    kept = pl.DataFrame({"x": x, "y": y}).drop_nulls()
    if kept.is_empty():
        return
    size = 2.4 if kept.height < MANY_POINTS else 1.2
    axes.plot(
        numbers(kept["x"]),
        numbers(kept["y"]),
        color=theme.POINT,
        linestyle="",
        marker=".",
        markersize=size,
        markeredgewidth=0,
        alpha=theme.POINT_OPACITY,
        rasterized=True,
    )


def reference(axes: Axes, *, x: float | None = None, y: float | None = None) -> None:
    """Draw a faint line at a reference value such as chance, zero or a mean."""
    look: dict[str, Any] = {"color": theme.INK, "alpha": theme.SOFT, "linewidth": 0.6, "linestyle": (0, (1, 2))}
    look |= {"zorder": 1, "label": theme.REFERENCE}
    if x is not None:
        axes.axvline(x, **look)
    if y is not None:
        axes.axhline(y, **look)


def line_entry(label: str, style: theme.Style, marker: bool = False) -> Artist:
    """Legend entry for a line."""
    return mpl.lines.Line2D(
        [], [], color=style.colour, linestyle=style.line, marker=style.marker if marker else "", label=label
    )


def point_entry(label: str, style: theme.Style, filled: bool = True) -> Artist:
    """Legend entry for points."""
    face = style.colour if filled else "none"
    look: dict[str, Any] = {"marker": style.marker, "markerfacecolor": face, "markeredgewidth": 0.7}
    return mpl.lines.Line2D([], [], color=style.colour, linestyle="", label=label, **look)


def patch_entry(label: str, style: theme.Style) -> Artist:
    """Legend entry for bars."""
    return mpl.patches.Patch(facecolor=style.colour, edgecolor=theme.INK, hatch=style.hatch, label=label)


def band_entry(label: str, style: theme.Style) -> Artist:
    """Legend entry for a band."""
    return mpl.patches.Patch(facecolor=style.colour, alpha=0.22, linewidth=0, label=label)


def logarithmic_x(axes: Axes) -> None:
    """Make the horizontal axis logarithmic, with short ticks at powers of ten."""
    axes.set_xscale("log")
    _log_ticks(axes.xaxis)


def ratio_scale(axes: Axes, axis: Axis, values: Sequence[pl.Series]) -> None:
    """Make an axis logarithmic, over the range of these values, with as many round ticks as fit."""
    positive = np.concatenate([numbers(each) for each in values])
    positive = positive[np.isfinite(positive) & (positive > 0)]
    if not positive.size:
        return
    (low, high), is_wide = (positive.min() / 1.15, positive.max() * 1.15), axis is axes.xaxis
    (axes.set_xscale if is_wide else axes.set_yscale)("log")
    (axes.set_xlim if is_wide else axes.set_ylim)(low, high)
    inches = (axes.bbox.width if is_wide else axes.bbox.height) / axes.figure.dpi
    decades = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))))
    most = max(2, int(inches / (0.3 if is_wide else 0.15)))
    round_ticks = [
        _inside([digit * 10.0**decade for decade in decades for digit in digits], low, high)
        for digits in ((1, 2, 5), (1, 3), (1,))
    ]
    ticks = next((each for each in round_ticks if len(each) <= most), round_ticks[-1])
    if len(round_ticks[0]) < 3:  # a small range: the steps of a linear axis
        ticks = _inside(mpl.ticker.MaxNLocator(min(most, 4), steps=[1, 2, 5, 10]).tick_values(low, high), low, high)
    axis.set_major_locator(mpl.ticker.FixedLocator(ticks))
    axis.set_major_formatter(mpl.ticker.FuncFormatter(short_number))
    axis.set_minor_locator(mpl.ticker.NullLocator())


def _inside(places: Iterable[float], low: float, high: float) -> list[float]:
    return [place for place in places if low <= place <= high]


def logarithmic_y(axes: Axes, values: pl.Series) -> None:
    """Make the vertical axis logarithmic, over at most five powers of ten below the largest value."""
    positive = values.filter(values > 0)
    if positive.is_empty():
        return
    axes.set_yscale("log")
    largest, smallest = float(np.max(positive.to_numpy())), float(np.min(positive.to_numpy()))
    axes.set_ylim(max(smallest, largest * 1e-5) * 0.7, largest * 1.6)
    _log_ticks(axes.yaxis, int(axes.bbox.height / axes.figure.dpi / 0.15))


def _log_ticks(axis: Axis, most: int = 5) -> None:
    axis.set_major_locator(mpl.ticker.LogLocator(numticks=min(5, max(2, most))))
    axis.set_major_formatter(mpl.ticker.FuncFormatter(short_number))
    axis.set_minor_locator(mpl.ticker.NullLocator())
