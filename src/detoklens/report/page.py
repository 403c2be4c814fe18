"""The report as one HTML document: its content as plain data, and the rendering of it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from detoklens.errors import printable
from detoklens.questions.base import Verdict
from detoklens.version import __version__
from detoklens.wording import rounded

Cell = str | int | float | bool | None
PIECES = ("␣conn", "ection")


@dataclass(frozen=True)
class Picture:
    """One figure, also drawn for narrow screens (`phone`). Its SVG is the only markup that the page does not escape."""

    name: str
    title: str
    caption: str
    svg: str
    phone: str


@dataclass(frozen=True)
class Grid:
    """A table for display: column names with their meanings, and rows."""

    title: str
    columns: Sequence[tuple[str, str]]
    rows: Sequence[Sequence[Cell]]
    is_open: bool = False
    """Whether it is at the top of the page and sortable, instead of in the appendix."""
    notes: Sequence[str] = ()

    @property
    def numeric(self) -> list[bool]:
        """Which columns hold numbers, and are right-aligned."""
        columns = [[row[place] for row in self.rows if row[place] is not None] for place in range(len(self.columns))]
        return [bool(cells) and all(type(cell) in (int, float) for cell in cells) for cells in columns]


@dataclass(frozen=True)
class Part:
    """The answer to one question: a line and `pictures` if it is a headline; the rest is in the appendix."""

    section: str
    title: str
    sentence: str
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    """Verdicts by model label; the label is empty if there is one model."""
    caveat: str = ""
    headline: bool = True
    pictures: Sequence[Picture] = ()
    more_pictures: Sequence[Picture] = ()
    grids: Sequence[Grid] = ()
    command: str = ""
    equation: str = ""
    not_drawn: Sequence[str] = ()
    """One sentence per missing figure."""

    @property
    def is_scorecard(self) -> bool:
        """Whether a table at the top of the page is the whole answer; its summary repeats that of other questions."""
        return any(grid.is_open for grid in self.grids)

    @property
    def says_yes(self) -> bool:
        """Whether the verdict is yes, of any model; only then does the caveat apply."""
        return any(self.verdicts.values())

    @property
    def anchor(self) -> str:
        """The appendix entry's id, from the letters and digits of its title."""
        return "part-" + "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in self.title)

    @property
    def extras(self) -> str:
        """What its appendix entry holds: `2 figures, 1 table`."""
        counted = ((len(self.more_pictures), "figure"), (sum(not grid.is_open for grid in self.grids), "table"))
        return ", ".join(f"{number} {what}{'s' * (number > 1)}" for number, what in counted if number)


@dataclass(frozen=True)
class Unasked:
    """Questions that could not be asked: the reason, and the command that would answer them, if any.

    With `sections`, the command would add lines to them; this one comes after `place` headlines.
    """

    titles: Sequence[str]
    reason: str
    command: str = ""
    sections: Sequence[str] = ()
    place: int = 0


@dataclass(frozen=True)
class Download:
    """A table as CSV inside the page, or its path in the folder if it is too large (`csv` is None)."""

    name: str
    question: str
    rows: int
    path: str
    csv: str | None


@dataclass(frozen=True)
class Content:
    """The whole page."""

    title: str
    summary: str
    facts: Sequence[tuple[str, str]]
    parts: Sequence[Part]
    unasked: Sequence[Unasked] = ()
    downloads: Sequence[Download] = ()
    pieces: Sequence[str] = PIECES
    """The two pieces of the word that the glossary explains its terms with."""
    terms: str = ""
    """The glossary's line on the other terms of this kind of positions."""
    notes: Sequence[str] = ()
    partners: Mapping[str, Any] | None = None
    """The data of the search box (see search.py)."""

    @property
    def open_grids(self) -> list[Grid]:
        """The tables at the top of the page."""
        return [grid for part in self.parts for grid in part.grids if grid.is_open]

    @property
    def is_comparison(self) -> bool:
        """Whether verdicts are of several models."""
        return any(label for part in self.parts for label in part.verdicts)

    @property
    def answers(self) -> list[Part | Unasked]:
        """The headlines, and what was not asked, in the order of the sections."""
        found: list[Part | Unasked] = [part for part in self.parts if part.headline]
        for some in reversed([some for some in self.unasked if some.sections]):
            found.insert(some.place, some)
        return found

    @property
    def sections(self) -> dict[str, list[Part]]:
        """The parts with figures on the page, by section."""
        found: dict[str, list[Part]] = {}
        for part in self.parts:
            if part.pictures:
                found.setdefault(part.section, []).append(part)
        return found


MARK = re.compile(r"(?P<word>yes|no|not testable) (?P<number>\((?:z )?(?P<value>[+−]?[\d.]+)[^)]*\))")


def render_page(content: Content) -> str:
    """Render the report as one self-contained HTML document."""
    style, script = _asset("page.css"), _asset("page.js")
    environment = Environment(
        loader=FunctionLoader(_asset), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"shown": shown, "mark": mark, "data": lambda value: Markup(script_json(value))}
    page = environment.get_template("page.html").render(
        content=content,
        version=__version__,
        policy=(
            f"default-src 'none'; style-src '{_source_hash(style)}'; script-src '{_source_hash(script)}'; "
            "img-src data:; base-uri 'none'; form-action 'none'"
        ),
        style=Markup(style),
        script=Markup(script),
        svg=Markup,
    )
    return printable(page)  # it may contain paths that are not UTF-8


def script_json(value: Any) -> str:
    """JSON that is safe inside an HTML element, with any strings."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def shown(value: Cell) -> str:
    """Format a cell."""
    match value:
        case None:
            return "–"
        case bool():
            return "yes" if value else "no"
        case float():
            return rounded(value).replace("-", "−")
        case _:
            return str(value)


def mark(cell: Cell) -> tuple[str, str, float] | None:
    """The word, number and sort value of `yes (+0.21)`; None for other cells."""
    found = MARK.fullmatch(cell) if isinstance(cell, str) else None
    return found and (found["word"], found["number"], float(found["value"].replace("−", "-")))


def _source_hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


@cache
def _asset(name: str) -> str:
    return files("detoklens.report").joinpath("assets", name).read_text(encoding="utf-8")
