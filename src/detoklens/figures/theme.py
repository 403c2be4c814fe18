"""The look of every figure: one ink, six series styles, two widths, fonts that every system has.

Everything except data is drawn in INK (lighter parts with opacity) on a transparent background, so an SVG in a page can
take the page's text colour, light or dark (save.py). The first four colours are Okabe and Ito's. Each series also has
its own line style, marker and hatch, so colour is never the only difference. Series colours have a contrast of at least
3 on white; in dark mode the page replaces them with `on_dark`, whose contrast is at least 4.5.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, ParamSpec

from detoklens.errors import RangeError
from detoklens.figures import mpl
from detoklens.wording import plural

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import Formatter

INK = "#1a1b1c"
FAINT = 0.16  # opacity of grids and of bands
SOFT = 0.62  # opacity of reference lines and of notes: a contrast of 4.5 on white and on dark
BESIDE = 0.5  # opacity of background lines: a contrast of 3
SEQUENTIAL = "cividis"  # lightness rises monotonically: readable in grey and with colour-blindness
DIVERGING = "RdBu_r"  # negative blue, zero white, positive red; also told apart with colour-blindness

POINT, POINT_OPACITY = "#2f7fc1", 0.8
"""Scatter plots are raster images, which a page can't recolour: a contrast of 3 on white and on dark."""

REFERENCE = "_reference"  # label of artists that are not data

WIDTHS = {"column": 3.3, "page": 7.0}  # inches
DPI = 200  # of PNG files and of images inside vector files
NARROWEST, WIDEST = 2.0, 30.0
TEXT_SIZE, SMALL_SIZE = 7.0, 6.0  # points

Width = str | float


@dataclass(frozen=True)
class Style:
    """How one series is drawn."""

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
    "text.parse_math": False,  # tokens may contain dollar signs
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
    "axes.titley": 1.0,  # fixed: searching for a better place takes a tenth of the drawing time
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
    """Convert a width (`column`, `page` or a number of inches) to inches."""
    try:
        value = WIDTHS.get(str(width)) or float(width)
    except ValueError:
        value = 0.0
    if not NARROWEST <= value <= WIDEST:
        names = ", ".join(f"{name} ({size} in)" for name, size in WIDTHS.items())
        raise RangeError(f"figure width {width!r} is neither {names} nor {NARROWEST:g} to {WIDEST:g} inches")
    return value


def style_of(place: int) -> Style:
    """The style of the n-th series; styles repeat after the last."""
    return SERIES[place % len(SERIES)]


def themed() -> AbstractContextManager[None]:
    """Use this theme on top of matplotlib's defaults, ignoring the user's settings, inside a `with` block."""
    return mpl.style.context(["default", _SETTINGS])


SYMBOL = re.compile("T([ᵉᵖ]+)")
LETTERS = str.maketrans("ᵉᵖ", "ep")


_GIVEN: ContextVar[Sequence[Axes]] = ContextVar("given axes", default=())


@contextmanager
def drawing_into(axes: Sequence[Axes]) -> Iterator[None]:
    """Draw a figure's panels into these axes, inside a `with` block."""
    token = _GIVEN.set(axes)
    try:
        yield
    finally:
        _GIVEN.reset(token)


def given_axes(panels: int) -> list[Axes]:
    """The axes to draw into, one per panel; none if none were given."""
    axes = list(_GIVEN.get())
    if axes and len(axes) != panels:
        raise RangeError(
            f"this figure has {plural(panels, 'panel')} and ax has {len(axes)}; pass an axes for each panel in a list, "
            "choose other heads, or omit ax"
        )
    return axes


def blank_figure(width: float, height: float) -> Figure:
    """An empty figure of this size in inches."""
    from detoklens.figures.shown import ShownFigure  # it imports matplotlib

    return ShownFigure(figsize=(width, height))


def use_mathtext(drawn: Artist, panels: Sequence[Axes]) -> Callable[[], None]:
    """Write the symbols of a figure or of one panel with mathtext; returns what undoes it."""
    found = {text: text.get_text() for text in drawn.findobj(mpl.text.Text) if isinstance(text, mpl.text.Text)}
    plain = {text: label for text, label in found.items() if _with_mathtext(label) != label}
    named = (axis for panel in panels for axis in (panel.xaxis, panel.yaxis) if plain.keys() & {*axis.get_ticklabels()})
    formatters = {axis: axis.get_major_formatter() for axis in named}
    for axis, formatter in formatters.items():  # drawing writes the labels of ticks again
        axis.set_major_formatter(mpl.ticker.FuncFormatter(partial(_format_with_mathtext, formatter)))
    for text, label in plain.items():
        text.set_text(_with_mathtext(label))
        text.set_parse_math(True)

    def undo() -> None:
        for axis, formatter in formatters.items():
            axis.set_major_formatter(formatter)
        for text, label in plain.items():
            text.set_text(label)
            text.set_parse_math(False)

    return undo


def _format_with_mathtext(formatter: Formatter, value: float, place: int | None) -> str:
    return _with_mathtext(formatter(value, place))


def _with_mathtext(label: str) -> str:
    """The label with `$T^{ee}$` for Tᵉᵉ; unchanged if it has a dollar sign of its own."""
    return label if "$" in label else SYMBOL.sub(lambda match: f"$T^{{{match[1].translate(LETTERS)}}}$", label)


NO_DATA = "no data"


def figure_function(draw: Callable[Parameters, Figure]) -> Callable[Parameters, Figure]:
    """Draw in the theme, label panels without data, and fix everything that outside settings could change."""

    @wraps(draw)
    def drawn(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Figure:
        with themed():
            figure = draw(*args, **kwargs)
            own = _GIVEN.get()
            _finish(own or figure.axes)
            for axes in own:  # saved by their owner
                use_mathtext(axes, [axes])
        return figure

    return drawn


def _finish(panels: Sequence[Axes]) -> None:
    for axes in panels:
        has_note = any(text.get_text() == NO_DATA for text in axes.texts)  # by a figure function that this one called
        if axes.axison and not has_note and not _has_data(axes):
            axes.set(xticks=[], yticks=[])
            axes.text(0.5, 0.5, NO_DATA, transform=axes.transAxes, ha="center", va="center", alpha=SOFT)
        for axis in (axes.xaxis, axes.yaxis):
            axis.get_majorticklabels()  # creates the ticks in this theme, not when the figure is saved
            axis.set_label_coords(0.5, 0.5)  # panels have no axis labels: skip matplotlib's search for a place


def is_empty(figure: Figure) -> bool:
    """Whether a figure has panels but none of them shows data."""
    panels = [axes for axes in figure.axes if axes.axison]
    return bool(panels) and not any(map(_has_data, panels))


def _has_data(axes: Axes) -> bool:
    drawn = (*axes.lines, *axes.collections, *axes.images, *axes.patches)
    return any(artist.get_label() != REFERENCE for artist in drawn)
