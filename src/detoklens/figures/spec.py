"""Description of a figure: tables, title, caption, drawing function."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from typing import TYPE_CHECKING, Any

from detoklens.errors import RangeError
from detoklens.figures.theme import drawing_into, figure_function
from detoklens.wording import exact_percent

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure


def _each_axes(ax: Any) -> list[Any]:
    """One Axes as a list; a list or an array of them as one list."""
    several = [ax] if hasattr(ax, "plot") else getattr(ax, "flat", ax)
    axes = list(several) if isinstance(several, Iterable) else []
    if not axes or not all(hasattr(each, "plot") for each in axes):
        raise RangeError("ax is an Axes of matplotlib, or a list with one for each panel; omit it for a new figure")
    return axes


@dataclass(frozen=True)
class FigureSpec:
    """One figure: its tables, its texts and the function that draws it.

    `function` is the function, or its name (by default that of the figure) in `figures.py` next to the question, or in
    the question's own file if there is no other. A `per_head` figure has one panel per head. `{band}` in a caption is
    replaced with the share of values inside a band.
    """

    name: str
    tables: tuple[str, ...]
    title: str
    caption: str
    function: str | Callable[..., Figure] = ""
    optional: tuple[str, ...] = ()
    per_head: bool = False
    options: tuple[tuple[str, Any], ...] = ()
    needs: str = ""
    """What the figure needs, shown to readers of a report that omits it."""
    module: str = ""
    """The question's module; its class fills it in."""

    def with_band(self, share: float) -> FigureSpec:
        """Set the share of values inside the bands, in the caption and in the drawing."""
        if "{band}" not in self.caption:
            return self
        caption = self.caption.replace("{band}", exact_percent(share))
        return replace(self, caption=caption, options=(*self.options, ("band_share", share)))

    @property
    def why_empty(self) -> str:
        """Why a figure may be omitted."""
        return f"it needs {self.needs}" if self.needs else "it has no data"

    def can_draw(self, tables: Mapping[str, Any]) -> bool:
        """Whether every required table is there and has rows."""
        return all(name in tables and len(tables[name]) for name in self.tables)

    def draw(self, tables: Mapping[str, Any], **options: Any) -> Figure:
        """Draw the figure from tables by name, into `ax`, an Axes for each panel, if it is given."""
        ax = options.pop("ax", None)
        function = figure_function(self._function())
        if "heads" in options and "heads" not in signature(function).parameters:
            raise RangeError(f"the figure {self.name} does not show single heads; omit heads")
        used = [tables[name] for name in self.tables] + [tables.get(name) for name in self.optional]
        if ax is None:
            return function(*used, **dict(self.options), **options)
        axes = _each_axes(ax)
        with drawing_into(axes):
            figure = function(*used, **dict(self.options), **options)
        if figure is not axes[0].figure:
            raise RangeError(f"the figure {self.name} has its own layout and can't be drawn into an Axes; omit ax")
        return figure

    def _function(self) -> Callable[..., Figure]:
        if not isinstance(self.function, str):
            return self.function
        package = self.module.rpartition(".")[0]
        figures = f"{package}.figures"
        module = import_module(figures if package and find_spec(figures) else self.module)
        found: Callable[..., Figure] = getattr(module, self.function or self.name)
        return found


def chosen_spec(specs: Sequence[FigureSpec], name: str | None, asked: str) -> FigureSpec:
    """The figure of this name, or the first if none is named."""
    if not specs:
        raise RangeError(f"{asked} has no figure of these tables")
    found = [spec for spec in specs if name in (None, spec.name)]
    if not found:
        raise RangeError(f"unknown figure {name!r}; the figures are {', '.join(spec.name for spec in specs)}")
    return found[0]
