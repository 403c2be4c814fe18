"""How far is a report? Each step tells a listener that it begins, and how it went."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from detoklens.progress import Watcher

Cell = str | int | float | bool | None


@dataclass(frozen=True)
class Picture:
    """One figure: `svg` is markup made by the figures room, the only markup that a page takes as it is."""

    name: str
    title: str
    caption: str
    svg: str
    phone: str
    """The same drawn narrow, which a narrow screen shows instead."""
    folded: bool = False
    """Whether the page shows it only when asked: the all-heads version of a figure, for example."""


@dataclass(frozen=True)
class Computed:
    """How an answer was computed: the exact command and the equation."""

    command: str
    equation: str


@dataclass(frozen=True)
class Grid:
    """A table to look at: names of columns with their meaning, and rows."""

    title: str
    columns: Sequence[tuple[str, str]]
    rows: Sequence[Sequence[Cell]]
    sortable: bool = False
    folded: bool = False

    @property
    def numeric(self) -> list[bool]:
        """Which columns hold numbers, to be written to the right."""
        columns = [[row[place] for row in self.rows if row[place] is not None] for place in range(len(self.columns))]
        return [bool(cells) and all(type(cell) in (int, float) for cell in cells) for cells in columns]


@dataclass(frozen=True)
class Part:
    """What one question of a section answers: a sentence, and what shows it; or why it is left out."""

    sentence: str = ""
    pictures: Sequence[Picture] = ()
    grids: Sequence[Grid] = ()
    computed: Computed | None = None
    left_out: str = ""
    not_drawn: Sequence[str] = ()
    """Why figures are missing, one sentence each."""


@dataclass(frozen=True)
class Section:
    """One thing that people want to know, its answer, and the questions that answer it."""

    title: str
    parts: Sequence[Part] = ()
    has_search: bool = False

    @property
    def answer(self) -> str:
        """What the first of its questions that could be asked says; else why none could."""
        said = [part.sentence for part in self.parts if part.sentence]
        return (said or [part.left_out for part in self.parts] or [""])[0]

    @property
    def anchor(self) -> str:
        words = "".join(letter if letter.isalnum() else " " for letter in self.title.lower()).split()
        return "-".join(words)


@dataclass(frozen=True)
class Download:
    """A table as CSV: its text where it is small enough to live in the page, else only where it lies beside it."""

    name: str
    question: str
    rows: int
    path: str
    csv: str | None


@dataclass(frozen=True)
class PartnerView:
    """The strongest partners of the searched tokens by one kind of scores.

    `partners` holds token ids as little-endian numbers in base64, [token, head, rank]; `seen` one bit for each of them,
    most significant first, set where the corpus has the pair.
    """

    partners: str
    seen: str | None


@dataclass(frozen=True)
class PartnerIndex:
    """The strongest partners of many tokens, packed for the page's search box.

    `tokens` are the texts of all tokens, None where no tokenizer says them; `mark` is what a tokenizer writes before a
    piece that goes on with a word, if it writes anything. An id takes `id_bytes` in the two views.
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


@dataclass(frozen=True)
class Content:
    """The whole report."""

    title: str
    summary: str
    facts: Sequence[tuple[str, str]]
    sections: Sequence[Section]
    downloads: Sequence[Download] = ()
    partners: PartnerIndex | None = None
    notes: Sequence[str] = field(default=())


@dataclass(frozen=True)
class Step:
    """How one step went: the `seconds` it took, whether it was `kept` from before, or what is `missing` for it."""

    title: str
    seconds: float = 0.0
    kept: bool = False
    missing: tuple[str, ...] = ()


@dataclass
class Listener:
    """Who is told about steps: that one begins (and gives a watcher for its bar), and how it went."""

    begin: Callable[[str], Watcher | None] = lambda _title: None
    end: Callable[[Step], None] = lambda _step: None
    passed: list[Step] = field(default_factory=list)
    label: str = ""
    """Which of several models the steps are about."""

    def about(self, label: str) -> Listener:
        """The same listener, told a model's label before each step."""
        return Listener(self.begin, self.end, self.passed, f"{label}: ")

    @contextlib.contextmanager
    def step(self, title: str) -> Iterator[Watcher | None]:
        """A step that is always done."""
        started = time.perf_counter()
        yield self.begin(self.label + title)
        self.tell(Step(title, time.perf_counter() - started))

    def tell(self, step: Step) -> None:
        """Note how a step went."""
        told = Step(self.label + step.title, step.seconds, step.kept, step.missing)
        self.passed.append(told)
        self.end(told)
