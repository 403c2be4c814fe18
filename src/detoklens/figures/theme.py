"""How does every figure look? One ink, six colours that differ in grey too, two widths, fonts that are everywhere.

All that is not data is drawn in INK, fainter parts in INK with some opacity, on no background: an inlined SVG then
takes the page's own text colour, light or dark (svg.py). The first four colours are Okabe and Ito's; each has its own
line style, marker and hatch, so that colour is never the only difference, and a contrast of at least 3 on white. On
dark ground the page gives each the colour `on_dark`, which even text could have: its contrast is at least 4.5.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from detoklens.errors import RangeError

INK = "#1a1b1c"
FAINT = 0.16  # opacity of grids and of bands
SOFT = 0.62  # opacity of reference lines and of notes: a contrast of 4.5 on white and on dark
BESIDE = 0.5  # opacity of lines that others are seen against: a contrast of 3
SEQUENTIAL = "cividis"  # lightness rises all the way: the same picture in grey and to colour-blind eyes

POINT, POINT_OPACITY = "#2f7fc1", 0.8
"""Of many points, an image that no page can colour anew: a contrast of 3 on white and on dark alike."""

REFERENCE = "_reference"  # label of what is drawn without being data

WIDTHS = {"column": 3.3, "page": 7.0}  # inches
DPI = 200  # of PNG files and of images inside vector files
NARROWEST, WIDEST = 2.0, 30.0
TEXT_SIZE, SMALL_SIZE = 7.0, 6.0  # points

Width = str | float


@dataclass(frozen=True)
class Style:
    """One series: a colour, and what tells it apart without colour."""

    colour: str
    line: Any
    marker: str
    hatch: str
    on_dark: str = "currentColor"


SERIES = (
    Style("#0072b2", "solid", "o", "", "#56b4e9"),
    Style("#d55e00", (0, (5, 1.5)), "s", "////", "#ff8a3d"),
    Style("#009e73", (0, (1, 1)), "^", "\\" * 4, "#2fc99a"),
    Style("#cc79a7", (0, (5, 1.5, 1, 1.5)), "D", "xxxx", "#e6a1c6"),
    Style("#9a7d0a", (0, (8, 2)), "v", "----", "#e6b800"),
    Style("#8a63b8", (0, (3, 1, 1, 1, 1, 1)), "P", "||||", "#b79ae0"),
)

_SETTINGS: dict[str, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],
    "font.size": TEXT_SIZE,
    "text.color": INK,
    "text.parse_math": False,  # a token may hold dollar signs
    "axes.edgecolor": INK,
    "axes.facecolor": "none",
    "axes.formatter.useoffset": False,
    "axes.labelcolor": INK,
    "axes.labelsize": TEXT_SIZE,
    "axes.linewidth": 0.6,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlepad": 3.0,
    "axes.titlesize": TEXT_SIZE,
    "axes.titley": 1.0,  # fixed: looking for a better place costs a tenth of the drawing
    "figure.dpi": DPI,
    "figure.facecolor": "none",
    "hatch.color": INK,
    "hatch.linewidth": 0.4,
    "legend.borderaxespad": 0.0,
    "legend.borderpad": 0.0,
    "legend.fontsize": SMALL_SIZE,
    "legend.frameon": False,
    "lines.linewidth": 1.0,
    "lines.markersize": 3.5,
    "patch.linewidth": 0.4,
    "pdf.fonttype": 42,
    "savefig.facecolor": "auto",
    "svg.fonttype": "none",
    "svg.hashsalt": "detoklens",
    "xtick.color": INK,
    "xtick.labelsize": SMALL_SIZE,
    "xtick.major.pad": 2.0,
    "xtick.major.size": 2.0,
    "xtick.major.width": 0.6,
    "ytick.color": INK,
    "ytick.labelsize": SMALL_SIZE,
    "ytick.major.pad": 2.0,
    "ytick.major.size": 2.0,
    "ytick.major.width": 0.6,
}

Parameters = ParamSpec("Parameters")


def inches(width: Width) -> float:
    """A figure's width: `column`, `page`, or a number of inches."""
    try:
        value = WIDTHS.get(str(width)) or float(width)
    except ValueError:
        value = 0.0
    if not NARROWEST <= value <= WIDEST:
        names = ", ".join(f"{name} ({size} in)" for name, size in WIDTHS.items())
        raise RangeError(f"figure width {width!r} is neither {names} nor {NARROWEST:g} to {WIDEST:g} inches")
    return value


def style_of(place: int) -> Style:
    """The style of the n-th series; after the last the first comes again."""
    return SERIES[place % len(SERIES)]


def themed() -> AbstractContextManager[None]:
    """matplotlib with this theme on top of its own defaults, whatever the user's settings; afterwards as before."""
    return matplotlib.style.context(["default", _SETTINGS])


class ShownFigure(Figure):
    """A figure that shows itself as the last line of a notebook's cell, with nothing switched on."""

    def _repr_svg_(self) -> str:
        from detoklens.figures.save import svg_file_text

        return svg_file_text(self, "figure")


def figure_function(draw: Callable[Parameters, Figure]) -> Callable[Parameters, Figure]:
    """Draw in the theme, and finish: panels without data say so, and nothing is left for settings outside to decide."""

    @wraps(draw)
    def drawn(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Figure:
        with themed():
            figure = draw(*args, **kwargs)
            _finish(figure)
        return figure

    return drawn


def _finish(figure: Figure) -> None:
    for axes in figure.axes:
        if axes.axison and not _has_data(axes):
            _say_no_data(axes)
        for axis in (axes.xaxis, axes.yaxis):
            axis.get_majorticklabels()  # ticks are made now, in this theme, not when somebody saves
            axis.set_label_coords(0.5, 0.5)  # panels have no labels of their own: no place is looked for


def is_empty(figure: Figure) -> bool:
    """Whether a figure has panels, and none of them shows any number."""
    panels = [axes for axes in figure.axes if axes.axison]
    return bool(panels) and not any(map(_has_data, panels))


def _has_data(axes: Axes) -> bool:
    drawn = (*axes.lines, *axes.collections, *axes.images, *axes.patches)
    return any(artist.get_label() != REFERENCE for artist in drawn)


def _say_no_data(axes: Axes) -> None:
    axes.set(xticks=[], yticks=[])
    axes.text(0.5, 0.5, "no data", transform=axes.transAxes, ha="center", va="center", alpha=SOFT)
