"""The base class of questions: parameters, inputs, tables, summary, verdict, figures and report section in one class.

A subclass is a frozen dataclass whose fields with a Parameter can be set. The command line builds its options from the
fields and its help from the docstring; the report builds "how this was computed" from the equation and the command.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import polars as pl

from detoklens.figures.spec import FigureSpec
from detoklens.parallel import Runner
from detoklens.questions.parameters import Checked, settings_of, to_cli_args, values_of
from detoklens.tables.schema import Schema

if TYPE_CHECKING:
    from detoklens.questions.study import Study

Frames = Mapping[str, pl.DataFrame]
ByLabel = Mapping[str, Frames]
NO_HEAD = "No head"
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
        """The verdict as plain data for JSON."""
        return {"value": self.value, "heads": list(self.heads), "reason": self.reason}


Need = Literal["vocabulary", "counts", "text", "seed", "position_table", "causal"]


@dataclass(frozen=True)
class View:
    """A table as it is displayed: title, rows and columns."""

    title: str
    frame: pl.DataFrame
    open: bool = False
    """Whether a report shows it at the top of the page, sortable; at most ten columns, named for readers."""
    notes: Sequence[str] = ()
    """What its numbers are, in lines below the table: `column: meaning`."""


@dataclass(frozen=True)
class ReportEntry:
    """One question of a report section.

    `label` distinguishes two answers to the same question in file names, `remark` in titles. `compared` entries are
    also asked when several models are compared. A `headline` has a line on the page and one figure: the first one, or
    `figure`, or none if that is None. Everything else is in the appendix.
    """

    question: Question
    label: str = ""
    remark: str = ""
    compared: bool = False
    headline: bool = True
    figure: str | None = ""

    @property
    def on_page(self) -> bool:
        """Whether one of its figures is on the page itself."""
        return self.headline and self.figure is not None

    @property
    def title(self) -> str:
        """The command's name and the remark, e.g. `auroc on continuation tokens`."""
        return f"{self.question.name()}{self.remark}"


@dataclass(frozen=True, repr=False)
class Question(Checked):
    """A question that a study can answer: `ask` computes the tables, `summarize` says the answer in one sentence."""

    progress_label: ClassVar[str] = "computing"
    """Shown while it is computed."""
    needs: ClassVar[frozenset[Need]] = frozenset()
    """Required inputs."""
    uses: ClassVar[frozenset[Need]] = frozenset()
    """Optional inputs that change the numbers."""
    tables: ClassVar[tuple[Schema, ...]] = ()
    figures: ClassVar[tuple[FigureSpec, ...]] = ()
    compared_figures: ClassVar[tuple[FigureSpec, ...]] = ()
    """Figures that compare models: each table is passed as a mapping from label to table."""
    compared_tables: ClassVar[tuple[str, ...]] = ()
    """Tables joined in a comparison; all of them by default."""
    equation: ClassVar[str] = ""
    by: ClassVar[Mapping[str, str]] = {}
    """Tables named after their rows, for `--by`."""
    display_columns: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Columns of a table to display first."""
    reads_counts: ClassVar[bool] = True
    """Whether counts determine more than a mean weighted by frequency."""
    parallel: ClassVar[bool] = False
    """Whether it computes on several threads and takes --workers."""
    caveat: ClassVar[str] = ""
    """What a "yes" does not show, in one sentence; reports print it below the summary."""
    report_section: ClassVar[str] = ""
    """Title of the report section that shows it; empty for a question that reports leave out."""
    reported: ClassVar[Mapping[str, Any]] = {}
    """How that section asks it without parameters: fields of a ReportEntry."""

    def __init_subclass__(cls) -> None:
        """Set the module in which its figures find their functions."""
        for kind in {"figures", "compared_figures"} & vars(cls).keys():
            setattr(cls, kind, tuple(replace(spec, module=cls.__module__) for spec in getattr(cls, kind)))

    def __repr__(self) -> str:
        """The class and the parameters that differ from their defaults."""
        defaults = {setting.name: setting.default for setting in settings_of(type(self))}
        changed = (f"{name}={value!r}" for name, value in values_of(self).items() if value != defaults[name])
        return f"{type(self).__name__}({', '.join(changed)})"

    @classmethod
    def name(cls) -> str:
        """The command's name."""
        return cls.__name__.lower()

    @classmethod
    def examples(cls) -> Sequence[Question]:
        """Questions that the gallery asks the demo model; together they draw every figure."""
        return (cls(),)

    @classmethod
    def report_entries(cls, _study: Study) -> Sequence[ReportEntry]:
        """The questions that its report section asks a study."""
        return [ReportEntry(cls(), **{"compared": bool(cls.compared_figures), **cls.reported})]

    @classmethod
    def takes(cls, need: Need) -> bool:
        """Whether its numbers can depend on this input."""
        return need in cls.needs | cls.uses

    def depends_on(self, need: Need) -> bool:
        """Whether its numbers depend on this input with these parameters."""
        by_frequency = "frequency" in (getattr(self, "mean", None), getattr(self, "weights", None))
        return self.takes(need) and (need != "counts" or self.reads_counts or by_frequency)

    @property
    def begins_with_bos(self) -> bool | None:
        """Whether its documents begin with the beginning-of-text token; None for the study's own setting."""
        return None

    @property
    def no_head(self) -> str:
        """The beginning of a sentence about no head: "No head", or "None of the chosen heads" if some were chosen."""
        return NO_HEAD if getattr(self, "heads", None) is None else "None of the chosen heads"

    def cli_args(self, _study: Study) -> list[str]:
        """Its parameters as command-line arguments."""
        return to_cli_args(self)

    def ask(self, study: Study, runner: Runner) -> Frames:
        """Compute the tables, by schema name."""
        raise NotImplementedError

    def summarize(self, tables: Frames) -> str:
        """The answer in one sentence, from the tables."""
        raise NotImplementedError

    def verdict(self, tables: Frames) -> Verdict | None:
        """The conclusion, from the tables; None for a question that only measures."""
        return None

    def summarize_comparison(self, by_label: ByLabel) -> str:
        """One sentence for several models, from their tables by label and name."""
        return " ".join(f"{label}: {self.summarize(tables)}" for label, tables in by_label.items())

    def settings(self, study: Study) -> dict[str, Any]:
        """The parameters that determine the numbers, as provenance records them."""
        values = values_of(self)
        return values | ({"heads": study.heads(values["heads"])} if "heads" in values else {})

    def schemas(self, tables: Frames) -> list[Schema]:
        """The schemas of these tables, without the columns that they lack, such as counts."""
        return [
            schema.without(*(set(schema.names) - set(tables[schema.name].columns)))
            for schema in self.tables
            if schema.name in tables
        ]

    def specs(self) -> Sequence[FigureSpec]:
        """The figures with these parameters."""
        return self.figures

    def compared_specs(self) -> Sequence[FigureSpec]:
        """The figures that compare models, with these parameters."""
        return self.compared_figures

    def view(self, tables: Frames, name: str) -> View:
        """One table for display: the columns that matter first, empty columns last."""
        schema = next(schema for schema in self.tables if schema.name == name)
        frame = tables[name]
        added = [column for column in frame.columns if column not in schema.names]  # such as a model's label
        first = [column for column in self.display_columns.get(name, ()) if column in frame.columns]
        ordered = dict.fromkeys([*added, *first, *frame.columns])
        empty_last = sorted(ordered, key=lambda column: bool(len(frame)) and frame[column].null_count() == len(frame))
        return View(schema.question, frame.select(empty_last))

    def views(self, tables: Frames) -> Sequence[View]:
        """The tables that a terminal shows: the first one by default."""
        return [self.view(tables, next(schema.name for schema in self.tables if schema.name in tables))]

    def page_views(self, tables: Frames) -> Sequence[View]:
        """The tables that a report page shows; it truncates long ones."""
        return self.views(tables)
