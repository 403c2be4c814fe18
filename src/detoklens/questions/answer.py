"""Answers, comparisons, and the folders that store them.

Each table's parquet file carries its provenance (to find an earlier answer), a description (to rebuild the answer) and
a checksum. A file is used only if its checksum is right and its description fits the question's parameters and tables.
"""

from __future__ import annotations

import json
import re
import warnings
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
    shown,
)
from detoklens.figures.save import svg_text
from detoklens.figures.spec import FigureSpec, chosen_spec
from detoklens.questions.base import Question, View
from detoklens.questions.catalogue import QUESTIONS
from detoklens.questions.parameters import values_of
from detoklens.tables.files import (
    ABOUT,
    MARK,
    TABLE,
    Provenance,
    StoredTable,
    note_recomputed,
    read_stored,
    write_tables,
)
from detoklens.tables.parts import Parts
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
        ax: Axes | None = None,
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
            Axes to draw into, for a figure of one panel (choose one head); ``width`` is ignored then.
        **more
            Further arguments of the figure.

        Returns
        -------
        matplotlib.figure.Figure
            The figure, with its numbers in the answer's tables; that of ``ax`` if given.

        Raises
        ------
        RangeError
            The answer has no such figure or head, or the figure has several panels and ``ax`` is one.
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


FORMAT = 2
"""Increased when the description changes; answers of another format are refused."""
ASK_AGAIN = "ask again and write to a new folder"


@dataclass(frozen=True)
class Description:
    """The description of an answer in the file of a table."""

    question: str
    settings: dict[str, Any]
    model: str
    command: str
    notes: list[str]
    tables: list[str]
    labels: list[str] | None = None


def _description_in(stored: StoredTable) -> Description:
    """The description in a table's file; an OutputError if its format or a type is wrong."""
    try:
        found = json.loads(stored.metadata[ABOUT])
        if not isinstance(found, dict) or found.pop("format", None) != FORMAT:
            raise ValueError("its description has another format")
        kinds = {"question": str, "settings": dict, "model": str, "command": str, "notes": list, "tables": list}
        kinds |= {"labels": list} if "labels" in found else {}
        if found.keys() != kinds.keys() or not all(isinstance(found[name], kind) for name, kind in kinds.items()):
            raise ValueError("its description has other fields, or fields of other types")
        texts = [text for name, kind in kinds.items() if kind is list for text in found[name]]
        if not all(isinstance(text, str) for text in texts):
            raise ValueError("its notes, tables or labels are not text")
    except (ValueError, RecursionError) as error:
        raise OutputError(f"{stored.path} was written by another version of detoklens ({first_line(error)})") from error
    return Description(**found)


def labelled(label: str, question: Question, name: str) -> str:
    """A table's or figure's name under a label: with `auroc_pieces`, `auroc_by_head` is `auroc_pieces_by_head`."""
    if not label:
        return name
    own = question.name()
    return label + name.removeprefix(own) if name.startswith(own) else f"{label}_{name}"


@dataclass(frozen=True)
class Store:
    """A folder of answers; a label in the file names distinguishes two answers to the same question.

    In a folder that a report has `claimed`, an unreadable file with a table's name is that table, damaged.
    """

    folder: Path
    label: str = ""
    claimed: bool = False

    def path(self, question: Question, table: str) -> Path:
        """The file of a table."""
        return self.folder / f"{labelled(self.label, question, table)}.parquet"

    def find(self, question: Question, provenance: Provenance) -> Answer | None:
        """The stored answer with this provenance, if it is complete."""
        try:
            candidates = [self.path(question, schema.name) for schema in question.tables]
            found = {path: read_stored(path, self.claimed) for path in candidates if path.is_file()}
            same = {path: each for path, each in found.items() if each and each.metadata[MARK] == provenance.to_json()}
            if not same:
                return None
            about = _description_in(next(iter(same.values())))
            paths = {name: self.path(question, name) for name in about.tables}
            if not set(paths.values()) <= set(same):
                return None
            for stored in same.values():
                stored.check_csv()
            tables = {name: same[path].frame() for name, path in paths.items()}
            return _restored(self.folder, question, about, tables, provenance)
        except OutputError as error:
            note_recomputed(error)
            return None

    def keep(self, answer: Answer | Comparison) -> list[Path]:
        """Write all tables of an answer and remove its finished parts."""
        question, provenance = answer.question, answer.provenance
        described = {
            "format": FORMAT,
            "question": question.name(),
            "settings": values_of(question),
            "model": answer.model,
            "command": answer.command,
            "notes": answer.notes,
            "tables": list(answer.tables),
        }
        if isinstance(answer, Comparison):
            described["labels"] = answer.labels
        about = json.dumps(described, sort_keys=True, default=str)
        tables = {self.path(question, schema.name): (schema, answer.tables[schema.name]) for schema in answer.schemas}
        written = write_tables(tables, provenance, about, self.claimed)
        Parts.of_question(self.folder, provenance).remove()
        return written


def read_answer(folder: str | Path, question: str | None = None) -> Answer | Comparison:
    """Read an answer that `Answer.write` or `--out` wrote.

    Parameters
    ----------
    folder
        The folder, or ``hf:USER/NAME`` (also with ``/FOLDER`` and ``@REVISION``) for one in a dataset on the hub.
    question
        The name of a question, e.g. ``"auroc"``, if the folder has several answers.

    Returns
    -------
    Answer or Comparison
        Equal to the written one.

    Raises
    ------
    OutputError
        The folder has no answer, several, a damaged one, or one of another version.

    Examples
    --------
    >>> import detoklens as dl
    >>> answer = dl.study("demo").ask(dl.Partners(["ion"]), folder="results")
    >>> dl.read_answer("results") == answer
    True
    """
    folder = as_path(folder, "a folder of answers")
    if str(folder).startswith("hf:"):
        from detoklens.hub.repository import fetch_folder

        folder = fetch_folder(str(folder), (".parquet",))
    if not folder.is_dir():
        raise OutputError(f"{folder}: no such folder; pass one that an answer was written to")
    found: dict[str, tuple[Description, dict[str, StoredTable]]] = {}  # by provenance
    refused: list[OutputError] = []
    for path in sorted(folder.glob("*.parquet")):
        try:
            if stored := read_stored(path):
                _, tables = found.setdefault(stored.metadata[MARK], (_description_in(stored), {}))
                tables[stored.metadata[TABLE]] = stored
        except OutputError as error:
            refused.append(error)
    if not found and refused:
        raise OutputError(f"{refused[0]}; {ASK_AGAIN}")
    if not found:
        raise OutputError(f"{folder} contains no detoklens answer; pass a folder that an answer was written to")
    names = sorted({about.question for about, _ in found.values()})
    chosen = {origin: each for origin, each in found.items() if question in (None, each[0].question)}
    if not chosen:
        remark = f"; {refused[0]}" if refused else ""
        raise OutputError(f"{folder} has no answer to {question!r}, only to {', '.join(names)}{remark}")
    complete = {origin: each for origin, each in chosen.items() if {*each[0].tables} <= each[1].keys()}
    chosen = complete if len(complete) == 1 else chosen
    if len(chosen) > 1 and len(names) > 1 and question is None:
        raise OutputError(
            f"{folder} has {len(chosen)} answers ({', '.join(names)}); name one: read_answer(folder, {names[0]!r})"
        )
    origin, (about, tables) = next(iter(chosen.items()))
    if len(chosen) > 1:
        raise OutputError(f"{folder} has {len(chosen)} answers to {about.question}; write each to a separate folder")
    for name in about.tables:
        if name not in tables:
            raise OutputError(
                f"{folder}: the table {name} is missing or damaged, so the answer is incomplete; {ASK_AGAIN}"
            )
    try:
        asked = QUESTIONS[about.question](**about.settings)
        provenance = Provenance.from_json(origin)
    except (DetokLensError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise OutputError(
            f"{folder}: this version of detoklens lacks the question or one of its parameters "
            f"({first_line(error)}); {ASK_AGAIN}"
        ) from error
    return _restored(folder, asked, about, {name: tables[name].frame() for name in about.tables}, provenance)


def _restored(
    folder: Path, question: Question, about: Description, tables: Mapping[str, pl.DataFrame], provenance: Provenance
) -> Answer | Comparison:
    """The answer, refused if its tables don't fit the question or can't be displayed."""
    common = (question, about.model, tables, provenance, about.command, tuple(about.notes))
    if about.labels is None:
        answer = Answer(*common, read_from=folder)
    else:
        answer = Comparison(*common, tuple(about.labels), read_from=folder)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # polars warns of comparing with a value that is missing
            _check_tables(answer)
            displayed = [text_table(view.frame.head(1)) for view in answer.views]
            if not (displayed and answer.sentence):
                raise ValueError("nothing to display")
    except Exception as error:
        raise OutputError(
            f"{folder}: the tables are not those of {question.name()} ({first_line(error)}); {ASK_AGAIN}"
        ) from error
    return answer


def _check_tables(answer: Answer) -> None:
    """Raise an error if tables, columns or types differ from the question's schemas, or for NaN and infinity."""
    schemas = {schema.name: schema for schema in answer.schemas}
    if schemas.keys() != answer.tables.keys():
        raise ValueError(f"tables {shown(list(answer.tables))} instead of {shown(list(schemas))}")
    for name, frame in answer.tables.items():
        if dict(frame.schema) != schemas[name].types:
            raise ValueError(f"the columns or types of table {name} differ from {', '.join(schemas[name].names)}")
        if not schemas[name].conform(frame).equals(frame):
            raise ValueError(f"table {name} holds NaN, which is never written")
