"""The content of a report's page as plain data, and the progress of making it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from detoklens.progress import Watcher
from detoklens.questions.base import Verdict

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
    note: str = ""

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
    """Questions that could not be asked: the reason, and the command that would answer them, if any."""

    titles: Sequence[str]
    reason: str
    command: str = ""


@dataclass(frozen=True)
class Download:
    """A table as CSV inside the page, or its path in the folder if it is too large (`csv` is None)."""

    name: str
    question: str
    rows: int
    path: str
    csv: str | None


@dataclass(frozen=True)
class PartnerView:
    """The strongest partners of the searchable tokens, by plain or by centred scores.

    `partners` holds little-endian token ids in base64, [token, head, rank]; `seen` holds one bit per partner, most
    significant first, set if the pair occurs in the corpus.
    """

    partners: str
    seen: str | None


@dataclass(frozen=True)
class PartnerIndex:
    """The strongest partners of many tokens, packed for the page's search box.

    `tokens` are the texts of all tokens, None without a tokenizer; `mark` is the tokenizer's prefix of continuation
    tokens, if any. An id takes `id_bytes` bytes in the two views. `example` is searched for when the page opens.
    """

    tokens: Sequence[str] | None
    mark: str
    searched: Sequence[int]
    n_heads: int
    top: int
    id_bytes: int
    plain: PartnerView
    centred: PartnerView
    note: str
    example: str


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
    notes: Sequence[str] = ()
    partners: PartnerIndex | None = None

    @property
    def open_grids(self) -> list[Grid]:
        """The tables at the top of the page."""
        return [grid for part in self.parts for grid in part.grids if grid.is_open]

    @property
    def sections(self) -> dict[str, list[Part]]:
        """The parts with figures on the page, by section."""
        found: dict[str, list[Part]] = {}
        for part in self.parts:
            if part.pictures:
                found.setdefault(part.section, []).append(part)
        return found


@dataclass(frozen=True)
class Step:
    """A finished step: its duration, whether its result was `kept` from before, or why it is `missing`."""

    title: str
    seconds: float = 0.0
    kept: bool = False
    missing: str = ""


@dataclass
class Listener:
    """Receives the progress of a report; `begin` may return a watcher for a progress bar."""

    begin: Callable[[str], Watcher | None] = lambda _title: None
    end: Callable[[Step], None] = lambda _step: None
    passed: list[Step] = field(default_factory=list)
    label: str = ""
    """Prefix that names one of several models."""

    def about(self, label: str) -> Listener:
        """The same listener, with a model's label before each step."""
        return replace(self, label=f"{label}: ")

    @contextlib.contextmanager
    def step(self, title: str) -> Iterator[Watcher | None]:
        """Time a step that is always run."""
        started = time.perf_counter()
        yield self.begin(self.label + title)
        self.tell(Step(title, time.perf_counter() - started))

    def tell(self, step: Step) -> None:
        """Report a finished step."""
        told = replace(step, title=self.label + step.title)
        self.passed.append(told)
        self.end(told)
