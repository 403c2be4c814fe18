"""Answers and comparisons: tables, summary, verdict and figures, as terminals and notebooks display them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from detoklens.errors import (
    DetokLensError,
    MissingExtraError,
    OutputError,
    RangeError,
    as_path,
    escape_unprintable,
    first_line,
)
from detoklens.figures.save import svg_text
from detoklens.figures.spec import FigureSpec, chosen_spec
from detoklens.questions.base import Question, View
from detoklens.tables.files import (
    Provenance,
)
from detoklens.tables.rendering import html_table, text_table
from detoklens.tables.schema import Column, Schema

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from detoklens.questions.base import Verdict


SHOWN_ROWS = 10  # of a table in a notebook
MODEL = Column("model", "label of the checkpoint", "String")


@dataclass(frozen=True, eq=False)
class Answer:
    """The answer of a study to a question.

    Attributes
    ----------
    question
        The question, with its parameters.
    model
        The model's name.
    sentence
        The answer in one sentence.
    verdict
        The conclusion as data, or None for a question that only measures.
    tables
        Polars tables by name.
    figures
        The figures that `figure` can draw, by name.
    provenance
        Everything that determined the numbers: parameters and fingerprints of the inputs.
    command
        The command line that gives the same numbers.
    notes
        Remarks about the input.
    read_from
        The folder that the answer was read from, or None.

    Examples
    --------
    >>> import detoklens as dl
    >>> answer = dl.study("demo").ask(dl.Partners(["ion"], heads=[1], top=3))
    >>> answer.sentence
    '“ion” scores highest in L0H1, with “␣interrupt”, “␣mot” and “␣nat”.'
    >>> answer.tables["partners"]["joined"].to_list()
    [' interruption', ' motion', ' nation']
    """

    question: Question
    model: str
    tables: Mapping[str, pl.DataFrame]
    provenance: Provenance
    command: str
    notes: tuple[str, ...] = ()
    read_from: Path | None = field(default=None, kw_only=True)

    def __eq__(self, other: object) -> bool:
        """Whether provenance and tables are equal; `read_answer` returns an answer equal to the written one."""
        if not isinstance(other, Answer):
            return NotImplemented
        mine, theirs = ((each.provenance.to_json(), each.model, [*each.tables]) for each in (self, other))
        return mine == theirs and all(map(pl.DataFrame.equals, self.tables.values(), other.tables.values()))

    def __hash__(self) -> int:
        return hash(self.provenance.to_json())

    @cached_property
    def sentence(self) -> str:
        """The answer in one sentence."""
        return self.question.summarize(self.tables)

    @cached_property
    def verdict(self) -> Verdict | None:
        """The conclusion as data: value, heads and the deciding control; None for a question that only measures."""
        return self.question.verdict(self.tables)

    @property
    def schemas(self) -> list[Schema]:
        """The schemas of the tables: what they and their columns mean."""
        return self.question.schemas(self.tables)

    @property
    def figures(self) -> dict[str, FigureSpec]:
        """The figures of this answer, by name."""
        return {spec.name: spec for spec in self.question.specs() if spec.can_draw(self.tables)}

    def figure(
        self,
        name: str | None = None,
        *,
        heads: Sequence[int] | None = None,
        width: str | float = "page",
        ax: Axes | Sequence[Axes] | None = None,
        **more: Any,
    ) -> Figure:
        """Draw a figure.

        Parameters
        ----------
        name
            One of `figures`; the first by default.
        heads
            Heads to draw; all by default.
        width
            ``"page"``, ``"column"`` or inches.
        ax
            Axes to draw into: one, or a list or array with one for each panel; ``width`` is ignored then.
        **more
            Further arguments of the figure.

        Returns
        -------
        matplotlib.figure.Figure
            The figure, with its numbers in the answer's tables; that of ``ax`` if given.

        Raises
        ------
        RangeError
            The answer has no such figure or head, or the figure has another number of panels than ``ax``.
        OutputError
            The answer was read from a folder whose tables can't be drawn.

        Examples
        --------
        >>> import detoklens as dl
        >>> answer = dl.study("demo").ask(dl.Positions(heads=[1]))
        >>> answer.figure("position_attention", width="column").savefig("figure.pdf")
        """
        spec = chosen_spec([*self.figures.values()], name, self.question.name())
        options = dict(more)
        if heads is not None:
            options["heads"] = [heads] if isinstance(heads, int) else list(heads)
            known = {head for table in spec.tables for head in self.tables[table].get_column("head", default=[])}
            if not options["heads"] or (known and not known.issuperset(options["heads"])):
                present = ", ".join(map(str, sorted(known)))
                raise RangeError(f"heads={options['heads']}: the heads of this answer are {present}")
        try:
            return spec.draw(self.drawn_from, ax=ax, width=width, **options)
        except Exception as error:
            if self.read_from is None or more or isinstance(error, DetokLensError):
                raise
            raise OutputError(f"{self.read_from}: {spec.name} can't be drawn ({first_line(error)})") from error

    def to_pandas(self, table: str | None = None) -> Any:
        """Convert a table to pandas.

        Parameters
        ----------
        table
            One of `tables`; the first by default.

        Returns
        -------
        pandas.DataFrame
            A copy of the table.

        Raises
        ------
        RangeError
            The answer has no such table.
        MissingExtraError
            pandas is not installed.

        Examples
        --------
        >>> import detoklens as dl
        >>> frame = dl.study("demo").ask(dl.Shape()).to_pandas("reach")  # doctest: +SKIP
        """
        if find_spec("pandas") is None:
            raise MissingExtraError("to_pandas needs pandas: pip install pandas; answer.tables has polars tables")
        name = next(iter(self.tables)) if table is None else table
        if name not in self.tables:
            raise RangeError(f"unknown table {name!r}; the tables are {', '.join(self.tables)}")
        return self.tables[name].to_pandas()

    @property
    def drawn_from(self) -> Mapping[str, Any]:
        """The tables that figures are drawn from."""
        return self.tables

    def write(self, folder: str | Path) -> list[Path]:
        """Write the tables to a folder, as parquet with provenance and as CSV; all of them or none.

        Parameters
        ----------
        folder
            Output folder; `read_answer` reads the answer back.

        Returns
        -------
        list of Path
            The parquet files; the CSV files are next to them.

        Raises
        ------
        OutputError
            The folder can't be written.

        Examples
        --------
        >>> import detoklens as dl
        >>> answer = dl.study("demo").ask(dl.Partners(["ion"]))
        >>> [path.name for path in answer.write("results")]
        ['partners.parquet']
        """
        from detoklens.questions.store import Store  # it makes answers

        return Store(as_path(folder, "the folder to write to")).keep(self)

    @property
    def views(self) -> Sequence[View]:
        """The tables that a terminal shows."""
        return self.question.views(self.tables)

    @property
    def page_views(self) -> Sequence[View]:
        """The tables that a report page shows."""
        return self.question.page_views(self.tables)

    def __str__(self) -> str:
        shown = [text_table(view.frame, f"{self.model}: {view.title}") for view in self.views]
        return "\n".join([*shown, escape_unprintable(self.sentence)])

    def __repr__(self) -> str:
        tables = ", ".join(f"{name} ({len(frame):,} rows)" for name, frame in self.tables.items())
        return escape_unprintable(f"Answer to {self.question!r} of {self.model}: {self.sentence} Tables: {tables}.")

    def _repr_html_(self) -> str:
        """Summary, first table rows and first figure, for a notebook."""
        parts = [f"<p><strong>{escape(self.sentence)}</strong></p>"]
        for view in self.views:
            frame = view.frame
            if len(frame) > SHOWN_ROWS and frame.schema.get("head") == pl.Int32:  # first the heads the summary names
                named = [int(head) for head in re.findall(r"\bL0H(\d+)", self.sentence)]
                frame = frame.sort(~pl.col("head").is_in(named), maintain_order=True)
            parts.append(html_table(frame, view.title, SHOWN_ROWS))
        for spec in [*self.figures.values()][:1]:
            drawn = svg_text(self.figure(spec.name), spec.name, spec.title, spec.caption)
            caption = f"<figcaption><strong>{escape(spec.title)}.</strong> {escape(spec.caption)}</figcaption>"
            parts.append(f"<figure>{drawn}{caption}</figure>")
        return "\n".join(parts)


@dataclass(frozen=True, repr=False, eq=False)
class Comparison(Answer):
    """One question answered by several models; the column `model` of each table has their labels.

    Attributes
    ----------
    labels
        The models' labels, in order.
    by_label
        Each model's tables.
    verdicts
        Each model's verdict; `verdict` is None.

    Examples
    --------
    >>> import detoklens as dl
    >>> compared = dl.compare({"start": "demo@0", "end": "demo"}, dl.Partners(["ion"], heads=[1], top=1))
    >>> compared.tables["partners"]["model"].to_list()
    ['start', 'end']
    """

    labels: tuple[str, ...] = ()

    @cached_property
    def by_label(self) -> dict[str, dict[str, pl.DataFrame]]:
        """Each model's tables."""
        return {
            label: {name: frame.filter(model=label).drop("model") for name, frame in self.tables.items()}
            for label in self.labels
        }

    @cached_property
    def verdict(self) -> None:
        """None: several models have no common verdict; see `verdicts`."""
        return None

    @cached_property
    def verdicts(self) -> dict[str, Verdict | None]:
        """Each model's verdict, by label."""
        return {label: self.question.verdict(tables) for label, tables in self.by_label.items()}

    @cached_property
    def sentence(self) -> str:
        """The comparison in one sentence."""
        return self.question.summarize_comparison(self.by_label)

    @property
    def schemas(self) -> list[Schema]:
        """The schemas of the tables, with the column of labels first."""
        plain = self.question.schemas(self.tables)
        return [Schema(schema.name, schema.question, MODEL, *schema.columns) for schema in plain]

    @property
    def figures(self) -> dict[str, FigureSpec]:
        """The figures that compare models, by name."""
        return {spec.name: spec for spec in self.question.compared_specs() if spec.can_draw(self.drawn_from)}

    @property
    def drawn_from(self) -> Mapping[str, Any]:
        """For each table, those of the models that have rows in it, in order."""
        drawn: dict[str, dict[str, pl.DataFrame]] = {}
        for label, tables in self.by_label.items():
            for name, frame in tables.items():
                if len(frame):
                    drawn.setdefault(name, {})[label] = frame
        return drawn

    @property
    def views(self) -> Sequence[View]:
        """The first table, with all models."""
        first = self.schemas[0]
        return [View(first.question, self.tables[first.name])]

    @property
    def page_views(self) -> Sequence[View]:
        """The first table, with all models."""
        return self.views


def side_by_side(question: Question, answers: Mapping[str, Answer]) -> Comparison:
    """Join the answers of several models; each table gets a column with the model's label."""
    names = dict.fromkeys(name for answer in answers.values() for name in answer.tables)
    tables = {
        name: pl.concat(
            [
                answer.tables[name].select(pl.lit(label).alias("model"), pl.all())
                for label, answer in answers.items()
                if name in answer.tables
            ],
            how="diagonal",
        )
        for name in names
        if not question.compared_tables or name in question.compared_tables
    }
    models = ", ".join(answers)
    provenance = Provenance(
        command="compare",
        model=models,
        model_fingerprint="",
        options={label: answer.provenance.to_json() for label, answer in answers.items()},
    )
    command = " && ".join(answer.command for answer in answers.values())
    notes = tuple(f"{label}: {note}" for label, answer in answers.items() for note in answer.notes)
    return Comparison(question, models, tables, provenance, command, notes, tuple(answers))
