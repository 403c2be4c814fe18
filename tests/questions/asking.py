"""What every question on text is tried with: a small model that can spell, its documents, and the two faces."""

from __future__ import annotations

import shlex
from pathlib import Path

import polars as pl

from detoklens.loading import load
from detoklens.questions.answer import Answer
from detoklens.questions.base import Question
from detoklens.questions.store import read_answer
from detoklens.questions.study import Study, Work
from detoklens.questions.texts import Texts
from detoklens.tables.rendering import text_table
from tests.cli.text_model import write_documents, write_text_model
from tests.command_line import run

TERMINAL = 80  # columns


def write_study(folder: Path) -> tuple[Path, Path]:
    """A model's folder and a file of documents."""
    (folder / "model").mkdir()
    return write_text_model(folder / "model"), write_documents(folder / "texts.jsonl")


def text_study(model: Path, file: Path, seed: int = 0, **texts: object) -> Study:
    """The model with the documents, computed in one process."""
    return Study(load(model), texts=Texts((str(file),), **texts), seed=seed, work=Work(workers=1))


def same_tables(one: Answer, other: Answer) -> bool:
    names = list(one.tables)
    return names == list(other.tables) and all(one.tables[name].equals(other.tables[name]) for name in names)


def assert_command_gives_the_same(answer: Answer, folder: Path) -> None:
    """The words of the answer, typed, write the same tables."""
    program, *words = shlex.split(answer.command)
    assert program == "detoklens"
    run(*words, "--out", folder)
    for name, table in answer.tables.items():
        assert pl.read_parquet(folder / f"{name}.parquet").equals(table), name


def assert_kept_and_read_again(study: Study, question: Question, folder: Path) -> None:
    """An answer in a folder is the same answer again, and is not computed a second time."""
    answer = study.ask(question)
    answer.write(folder)
    again = read_answer(folder)
    assert same_tables(answer, again)
    assert again.question == question
    assert (again.sentence, again.command, again.notes) == (answer.sentence, answer.command, answer.notes)
    assert list(again.figures) == list(answer.figures)
    assert again.provenance == answer.provenance


def shown_lines(answer: Answer) -> list[str]:
    """What a terminal of 80 columns shows of an answer."""
    return [line for view in answer.views for line in text_table(view.frame, view.title, TERMINAL).splitlines() if line]
