"""Answers in a folder: tables as parquet with their provenance and as CSV, an answer whole or not at all.

A table's parquet file carries two things: the provenance, which says whether a question was answered before, and a
description of the answer, from which the answer is made again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detoklens.errors import OutputError, RangeError, as_path
from detoklens.questions.answer import Answer, Comparison
from detoklens.questions.parameters import settings_of
from detoklens.tables.files import ABOUT, MARK, TABLE, read_metadata, write_tables

if TYPE_CHECKING:
    import polars as pl

    from detoklens.questions.question import Question
    from detoklens.tables.parts import Parts
    from detoklens.tables.provenance import Provenance

FORMAT = 1
"""Goes up when an answer's description changes; older answers are refused with a word about it."""


def labelled(label: str, question: Question, name: str) -> str:
    """A table's or figure's name under a label: with `auroc_pieces`, `auroc_by_head` is `auroc_pieces_by_head`."""
    if not label:
        return name
    own = question.name()
    return label + name.removeprefix(own) if name.startswith(own) else f"{label}_{name}"


@dataclass(frozen=True)
class Store:
    """A folder of answers. A label tells two answers to the same question apart: it is part of their files' names."""

    folder: Path
    label: str = ""

    def path(self, question: Question, table: str) -> Path:
        """Where a table of an answer lies."""
        return self.folder / f"{labelled(self.label, question, table)}.parquet"

    def parts(self, provenance: Provenance) -> Parts:
        """Where finished blocks of this very question are kept until all are done."""
        from detoklens.tables.parts import Parts

        return Parts.of_question(self.folder, provenance)

    def find(self, question: Question, provenance: Provenance) -> Answer | None:
        """The answer, if it is there, whole and with the same provenance."""
        wanted = provenance.to_json()
        found = {path: read_metadata(path) for path in self._candidates(question)}
        about = next((_described(each.get(ABOUT)) for each in found.values() if each.get(MARK) == wanted), None)
        if about is None:
            return None
        paths = {name: self.path(question, name) for name in about["tables"]}
        whole = all(
            found.get(path, {}).get(MARK) == wanted and path.with_suffix(".csv").is_file() for path in paths.values()
        )
        if not whole:
            return None
        try:
            return _answer(question, about, _read(paths), provenance)
        except OutputError:  # damaged: asked again
            return None

    def _candidates(self, question: Question) -> list[Path]:
        return [path for schema in question.tables if (path := self.path(question, schema.name)).is_file()]

    def keep(self, answer: Answer | Comparison) -> list[Path]:
        """Write all tables of an answer; what was kept of it while it was computed goes."""
        question, provenance = answer.question, answer.provenance
        described = {
            "format": FORMAT,
            "question": question.name(),
            "settings": {setting.name: getattr(question, setting.name) for setting in settings_of(type(question))},
            "model": answer.model,
            "command": answer.command,
            "notes": answer.notes,
            "tables": list(answer.tables),
        }
        if isinstance(answer, Comparison):
            described["labels"] = list(answer.labels)
        tables = {self.path(question, schema.name): (schema, answer.tables[schema.name]) for schema in answer.schemas}
        written = write_tables(tables, provenance, json.dumps(described, sort_keys=True, default=str))
        self.parts(provenance).remove()
        return written


def _read(paths: Mapping[str, Path]) -> dict[str, pl.DataFrame]:
    import polars as pl

    try:
        return {name: pl.read_parquet(path) for name, path in paths.items()}
    except (OSError, pl.exceptions.PolarsError) as error:
        raise OutputError(f"{error}; the answer is damaged: ask again") from error


def read_answer(folder: str | Path, question: str | None = None) -> Answer | Comparison:
    """An answer that `answer.write` (or --out) left in a folder; where there are several, name the question."""
    folder = as_path(folder, "a folder of answers")
    found = _answers_in(folder)
    names = sorted({about["question"] for about, _ in found.values()})
    chosen = [key for key, (about, _) in found.items() if question in (None, about["question"])]
    if not chosen:
        raise OutputError(f"{folder} has no answer to {question!r}; it has {', '.join(names)}")
    whole = [key for key in chosen if set(found[key][0]["tables"]) <= set(found[key][1])]
    chosen = whole if len(whole) == 1 else chosen
    if len(chosen) > 1 and len(names) > 1 and question is None:
        raise OutputError(
            f"{folder} has {len(chosen)} answers ({', '.join(names)}); name one: read_answer(folder, {names[0]!r})"
        )
    if len(chosen) > 1:
        asked = found[chosen[0]][0]["question"]
        raise OutputError(f"{folder} has {len(chosen)} answers to {asked}; write each into a folder of its own")
    about, paths = found[chosen[0]]
    return _made_again(folder, chosen[0], about, paths)


def _answers_in(folder: Path) -> dict[str, tuple[dict[str, Any], dict[str, Path]]]:
    """By provenance: the description of each answer, and where its tables lie."""
    if not folder.is_dir():
        raise OutputError(f"{folder}: no such folder; name one that an answer was written to")
    found: dict[str, tuple[dict[str, Any], dict[str, Path]]] = {}
    older = None
    for path in sorted(folder.glob("*.parquet")):
        said = read_metadata(path)
        described = _described(said.get(ABOUT))
        if described is None:
            older = path if said else older
            continue
        found.setdefault(said[MARK], (described, {}))[1][said[TABLE]] = path
    if not found:
        raise OutputError(
            f"{older}: written by another version of detoklens; ask again"
            if older
            else f"{folder} holds no answer of detoklens; name one that an answer was written to"
        )
    return found


def _described(about: str | None) -> dict[str, Any] | None:
    """What is said of an answer; None where that is of another format."""
    try:
        described = json.loads(about or "")
    except (ValueError, RecursionError):
        return None
    return described if isinstance(described, dict) and described.get("format") == FORMAT else None


def _made_again(
    folder: Path, provenance: str, about: Mapping[str, Any], paths: Mapping[str, Path]
) -> Answer | Comparison:
    from detoklens.questions.catalogue import QUESTIONS
    from detoklens.tables.provenance import Provenance

    missing = [name for name in about["tables"] if name not in paths]
    if missing:
        raise OutputError(f"{folder}: the table {missing[0]} is missing, so the answer is not whole; ask again")
    try:
        question = QUESTIONS[about["question"]](**about["settings"])
        decided = Provenance(**json.loads(provenance))
    except (KeyError, TypeError, RangeError) as error:
        raise OutputError(
            f"{folder}: an answer of another version of detoklens, or to a question that is not known here; ask again"
        ) from error
    tables = _read({name: paths[name] for name in about["tables"]})
    return _answer(question, about, tables, decided)


def _answer(
    question: Question, about: Mapping[str, Any], tables: Mapping[str, pl.DataFrame], provenance: Provenance
) -> Answer | Comparison:
    common = (question, about["model"], tables, provenance, about["command"], tuple(about["notes"]))
    return Comparison(*common, tuple(about["labels"])) if "labels" in about else Answer(*common)
