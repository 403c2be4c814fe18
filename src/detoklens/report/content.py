"""The content of a report's page as plain data, and the progress of making it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from detoklens.progress import Watcher
from detoklens.questions.base import Verdict

Cell = str | int | float | bool | None


@dataclass(frozen=True)
class Picture:
    """One figure. Its SVG comes from the figures package and is the only markup that the page does not escape."""

    name: str
    title: str
    caption: str
    svg: str
    phone: str
    """The figure drawn for narrow screens, as SVG."""
    folded: bool = False
    """Whether the page collapses it, as it does figures of all heads."""


@dataclass(frozen=True)
class Computed:
    """How an answer was computed: the exact command and the equation."""

    command: str
    equation: str


@dataclass(frozen=True)
class Grid:
    """A table for display: column names with their meanings, and rows."""

    title: str
    columns: Sequence[tuple[str, str]]
    rows: Sequence[Sequence[Cell]]
    sortable: bool = False
    folded: bool = False

    @property
    def numeric(self) -> list[bool]:
        """Which columns hold numbers, and are right-aligned."""
        columns = [[row[place] for row in self.rows if row[place] is not None] for place in range(len(self.columns))]
        return [bool(cells) and all(type(cell) in (int, float) for cell in cells) for cells in columns]


@dataclass(frozen=True)
class Part:
    """The answer to one question of a section, or why there is none."""

    sentence: str = ""
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    """Verdicts by model label; the label is empty if there is one model."""
    pictures: Sequence[Picture] = ()
    grids: Sequence[Grid] = ()
    computed: Computed | None = None
    left_out: str = ""
    not_drawn: Sequence[str] = ()
    """One sentence per missing figure."""


@dataclass(frozen=True)
class Section:
    """A section of the page: the questions that belong together."""

    title: str
    parts: Sequence[Part] = ()
    has_search: bool = False

    @property
    def answer(self) -> str:
        """The summary of the first question with an answer, or why there is none."""
        said = [part.sentence for part in self.parts if part.sentence]
        return (said or [part.left_out for part in self.parts] or [""])[0]

    @property
    def anchor(self) -> str:
        words = "".join(letter if letter.isalnum() else " " for letter in self.title.lower()).split()
        return "-".join(words)


@dataclass(frozen=True)
class Download:
    """A table as CSV; `csv` is its text if it is small enough for the page, else None."""

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
    tokens, if any. An id takes `id_bytes` bytes in the two views.
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
    """A finished step: its duration, whether its result was `kept` from before, or which inputs are `missing`."""

    title: str
    seconds: float = 0.0
    kept: bool = False
    missing: tuple[str, ...] = ()


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
        return Listener(self.begin, self.end, self.passed, f"{label}: ")

    @contextlib.contextmanager
    def step(self, title: str) -> Iterator[Watcher | None]:
        """Time a step that is always run."""
        started = time.perf_counter()
        yield self.begin(self.label + title)
        self.tell(Step(title, time.perf_counter() - started))

    def tell(self, step: Step) -> None:
        """Report a finished step."""
        told = Step(self.label + step.title, step.seconds, step.kept, step.missing)
        self.passed.append(told)
        self.end(told)
