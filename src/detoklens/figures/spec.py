"""What is known of a figure before it is drawn? Its tables, its title, its caption. Needs no matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Any

from detoklens.errors import RangeError
from detoklens.wording import exact_percent

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure


@dataclass(frozen=True)
class FigureSpec:
    """One figure: which function draws it, from which tables, and what it says.

    `function` is `module:name` in the figures room, or the function itself. Figures that are drawn `per_head` have a
    panel for each head: they are drawn for chosen heads and for all. `{band}` in a caption stands for the share that a
    band holds, which the question knows.
    """

    name: str
    function: str | Callable[..., Figure]
    tables: tuple[str, ...]
    title: str
    caption: str
    optional: tuple[str, ...] = ()
    per_head: bool = False
    options: tuple[tuple[str, Any], ...] = ()
    needs: str = ""
    """What its numbers need, for the reader of a report that had to leave it out."""

    def with_band(self, share: float) -> FigureSpec:
        """The same with the share that its bands hold, in the caption and in what is drawn; as it is if it has none."""
        if "{band}" not in self.caption:
            return self
        caption = self.caption.replace("{band}", exact_percent(share))
        return replace(self, caption=caption, options=(*self.options, ("band_share", share)))

    @property
    def why_empty(self) -> str:
        """Why there may be nothing to draw."""
        return f"it needs {self.needs}" if self.needs else "none of its numbers is known"

    def can_draw(self, tables: Mapping[str, Any]) -> bool:
        """Whether every table that it can't do without is there and has rows."""
        return all(name in tables and len(tables[name]) for name in self.tables)

    def draw(self, tables: Mapping[str, Any], **options: Any) -> Figure:
        """The figure from tables by name; other tables are left alone."""
        function = self._function()
        if "heads" in options and "heads" not in signature(function).parameters:
            raise RangeError(f"the figure {self.name} shows no single heads; leave heads out")
        used = [tables[name] for name in self.tables] + [tables.get(name) for name in self.optional]
        return function(*used, **dict(self.options), **options)

    def _function(self) -> Callable[..., Figure]:
        if not isinstance(self.function, str):
            return self.function
        module, _, name = self.function.partition(":")
        found: Callable[..., Figure] = getattr(import_module(f"detoklens.questions.{module}.figures"), name or module)
        return found


def chosen_spec(specs: Sequence[FigureSpec], name: str | None, asked: str) -> FigureSpec:
    """The figure of this name, the first where none is named; refused with the names that there are."""
    if not specs:
        raise RangeError(f"{asked} has no figure of these tables")
    found = [spec for spec in specs if name in (None, spec.name)]
    if not found:
        raise RangeError(f"there is no figure {name!r}; the figures are {', '.join(spec.name for spec in specs)}")
    return found[0]
