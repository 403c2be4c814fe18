"""What is a question? An object that owns all that belongs to it: parameters, needs, tables, sentence, figures.

A subclass is a frozen dataclass; its fields with a Parameter are what can be set. Nothing of a question is written a
second time: the command line makes its options from the fields and its help from the docstring, the report its
"how this was computed" from the equation and the command, provenance is what the question says decides its numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

from detoklens.figures.spec import FigureSpec
from detoklens.questions.parameters import check_settings, settings_of, to_cli_args
from detoklens.tables.schema import Schema

if TYPE_CHECKING:
    import polars as pl

    from detoklens.parallel import Runner
    from detoklens.questions.study import Study

    Frames = Mapping[str, pl.DataFrame]
    ByLabel = Mapping[str, Frames]


Value = Literal["yes", "no", "untestable"]


@dataclass(frozen=True)
class Verdict:
    """The conclusion of an answer.

    `value` is "yes", "no" or "untestable"; `heads` are the heads it names, such as "L0H1"; `reason` says in plain words
    which control decided. Summaries, JSON output, reports, the explorer and comparisons are made from it.
    """

    value: Value
    reason: str
    heads: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.value not in get_args(Value):
            raise ValueError(f"a verdict is one of {', '.join(get_args(Value))}, not {self.value!r}")

    def __bool__(self) -> bool:
        """Whether the verdict is "yes"."""
        return self.value == "yes"

    def to_dict(self) -> dict[str, Any]:
        """The verdict as JSON holds it."""
        return {"value": self.value, "heads": list(self.heads), "reason": self.reason}


Need = Literal["vocabulary", "counts", "text", "seed", "position_table", "causal"]


@dataclass(frozen=True)
class View:
    """A table for eyes: its title, and what of it is shown."""

    title: str
    frame: pl.DataFrame
    open: bool = False
    """Whether a page shows it at once, sortable, and not only when asked."""


@dataclass(frozen=True, repr=False)
class Question:
    """What a study can be asked. `ask` gives the tables by name, `say` the answer in one sentence."""

    topic: ClassVar[str] = "Other questions"
    """Under which of the things that people want to know the command line lists it."""
    progress_label: ClassVar[str] = "computing"
    """What is shown while it is computed."""
    needs: ClassVar[frozenset[Need]] = frozenset()
    """What it can't do without."""
    uses: ClassVar[frozenset[Need]] = frozenset()
    """What it takes into account where it is there."""
    tables: ClassVar[tuple[Schema, ...]] = ()
    figures: ClassVar[tuple[FigureSpec, ...]] = ()
    compared_figures: ClassVar[tuple[FigureSpec, ...]] = ()
    """Figures of several models: each table is given as a mapping from label to table."""
    compared_tables: ClassVar[tuple[str, ...]] = ()
    """Which tables are put together for several models; all of them where none is named."""
    equation: ClassVar[str] = ""
    by: ClassVar[Mapping[str, str]] = {}
    """Short names of tables: what one row is."""
    display_columns: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Which columns of a table matter first to eyes, where those are not its first ones."""
    parallel: ClassVar[bool] = False
    """Whether it computes on several threads, and so takes --workers."""

    def __post_init__(self) -> None:
        check_settings(self)

    def __repr__(self) -> str:
        """What was set otherwise than by default."""
        settings = settings_of(type(self))
        given = [(setting.name, getattr(self, setting.name), setting.default) for setting in settings]
        said = ", ".join(f"{name}={value!r}" for name, value, default in given if value != default)
        return f"{type(self).__name__}({said})"

    @classmethod
    def name(cls) -> str:
        """The command's name."""
        return cls.__name__.lower()

    @classmethod
    def examples(cls) -> Sequence[Question]:
        """What a gallery asks of the demo model: together they draw every figure of the question."""
        return (cls(),)

    @classmethod
    def takes(cls, need: Need) -> bool:
        """Whether this decides or may decide its numbers."""
        return need in cls.needs | cls.uses

    def depends_on(self, need: Need) -> bool:
        """Whether this decides the numbers of this very question: a parameter may leave out what the class takes."""
        return self.takes(need)

    def cli_args(self, _study: Study) -> list[str]:
        """Its parameters in the command line's words."""
        return to_cli_args(self)

    def ask(self, study: Study, runner: Runner) -> Frames:
        """The tables by their schemas' names."""
        raise NotImplementedError

    def summarize(self, tables: Frames) -> str:
        """The answer in one sentence, read off the tables."""
        raise NotImplementedError

    def verdict(self, tables: Frames) -> Verdict | None:
        """The conclusion, read off the tables; None for a question that only measures."""
        return None

    def summarize_comparison(self, by_label: ByLabel) -> str:
        """One sentence for several models, their tables by label and name."""
        return " ".join(f"{label}: {self.summarize(tables)}" for label, tables in by_label.items())

    def settings(self, study: Study) -> dict[str, Any]:
        """What of the parameters decides the numbers, as provenance keeps it."""
        given = {setting.name: getattr(self, setting.name) for setting in settings_of(type(self))}
        return given | ({"heads": study.heads(given["heads"])} if "heads" in given else {})

    def schemas(self, tables: Frames) -> list[Schema]:
        """What the columns of these tables mean."""
        return [schema.as_found(tables[schema.name]) for schema in self.tables if schema.name in tables]

    def specs(self) -> Sequence[FigureSpec]:
        """The figures of answers to this very question: a parameter may change what they say."""
        return self.figures

    def compared_specs(self) -> Sequence[FigureSpec]:
        """The same of several models' answers to it."""
        return self.compared_figures

    def table_by(self, row: str) -> str | None:
        """The table that a short name stands for, in answers to this very question."""
        return self.by.get(row)

    def view(self, tables: Frames, name: str) -> View:
        """One table for eyes: the columns that matter first, those that say nothing last."""
        schema = next(schema for schema in self.tables if schema.name == name)
        frame = tables[name]
        beside = [column for column in frame.columns if column not in schema.names]  # such as a model's label
        ordered = dict.fromkeys([*beside, *self.display_columns.get(name, ()), *frame.columns])
        there = [column for column in ordered if column in frame.columns]
        told = sorted(there, key=lambda column: bool(len(frame)) and frame[column].null_count() == len(frame))
        return View(schema.question, frame.select(told))

    def views(self, tables: Frames) -> Sequence[View]:
        """What a terminal shows: the first table, unless the question knows better."""
        return [self.view(tables, self.schemas(tables)[0].name)]

    def page_views(self, tables: Frames) -> Sequence[View]:
        """The tables that a report's page shows; long ones are cut there."""
        return self.views(tables)
