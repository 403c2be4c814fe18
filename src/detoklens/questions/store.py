"""Folders that store answers.

Each table's parquet file carries its provenance (to find an earlier answer), a description (to rebuild the answer) and
a checksum. A file is used only if its checksum is right and its description fits the question's parameters and tables.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from detoklens.errors import DetokLensError, OutputError, as_path, first_line, shown
from detoklens.questions.answer import Answer, Comparison
from detoklens.questions.base import Question
from detoklens.questions.catalogue import QUESTIONS
from detoklens.questions.parameters import values_of
from detoklens.tables.files import (
    ABOUT,
    MARK,
    TABLE,
    Parts,
    Provenance,
    StoredTable,
    note_recomputed,
    read_stored,
    write_tables,
)
from detoklens.tables.rendering import text_table

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
