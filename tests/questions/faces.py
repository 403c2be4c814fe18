"""What every answer must be able to do: be asked again by its command, be kept and read, be shown at 80 columns."""

from __future__ import annotations

import shlex
from pathlib import Path

import polars as pl

from detoklens.questions.answer import Answer
from detoklens.questions.store import read_answer
from detoklens.tables.rendering import text_table
from detoklens.wording import column_cells
from tests.command_line import Result, run

NARROW = 80


def check_faces(answer: Answer, folder: Path) -> None:
    """All of it."""
    check_command(answer, folder / "by command")
    check_kept(answer, folder / "kept")
    check_shown(answer)


def check_command(answer: Answer, folder: Path) -> Result:
    """The command's words give the same tables."""
    program, *words = shlex.split(answer.command)
    assert program == "detoklens"
    few = ["--workers", "1"] if answer.question.parallel else []
    result = run(*words, *few, "--out", folder)
    check_written(answer, folder)
    return result


def check_written(answer: Answer, folder: Path) -> None:
    """The folder holds the tables, as parquet and as CSV, and nothing else."""
    names = sorted(f"{name}.{ending}" for name in answer.tables for ending in ("csv", "parquet"))
    assert sorted(path.name for path in folder.iterdir()) == names
    for name, frame in answer.tables.items():
        assert pl.read_parquet(folder / f"{name}.parquet").equals(frame), name


def check_kept(answer: Answer, folder: Path) -> None:
    """What is written is read as the same answer."""
    answer.write(folder)
    check_written(answer, folder)
    again = read_answer(folder)
    assert again.question == answer.question
    assert again.sentence == answer.sentence
    assert again.command == answer.command
    assert again.provenance.to_json() == answer.provenance.to_json()
    assert list(again.figures) == list(answer.figures)
    assert all(again.tables[name].equals(frame) for name, frame in answer.tables.items())


def check_shown(answer: Answer) -> None:
    """In a terminal of 80 columns no number and no token is broken; a notebook shows the same."""
    for name in answer.tables:
        view = answer.question.view(answer.tables, name)
        shown_columns(view.frame)
    assert answer.sentence in str(answer)
    assert answer.sentence.count("\n") == 0
    page = answer._repr_html_()
    assert page.count("<table>") == len(answer.views)
    assert ("<figure>" in page) == bool(answer.figures)


def shown_columns(frame: pl.DataFrame, width: int = NARROW) -> list[str]:
    """The columns that a narrow terminal shows; each of their cells stands there whole."""
    lines = text_table(frame, width=width).splitlines()
    heading, rows = lines[0].split(), lines[2 : 2 + len(frame)]
    columns = {name: column_cells(frame[name].to_list()) for name in heading}
    for place, row in enumerate(rows):
        found = 0
        for name in heading:
            cell = columns[name][place]
            assert cell in row[found:], (name, cell, row)
            found = row.index(cell, found) + len(cell)
        assert len(row) <= width or len(heading) == 1, row
    return heading
