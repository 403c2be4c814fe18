"""Writes what the reference takes from the registry of questions: tables with every column's meaning, classes."""

from __future__ import annotations

from pathlib import Path

from detoklens.questions.catalogue import QUESTIONS
from detoklens.tables.schema import Schema

INTRODUCTION = """# Tables

Every number of an answer stands in a table with a declared schema: `answer.tables["NAME"]` in Python, `NAME.parquet`
and `NAME.csv` in a folder that `--out` names. Heads, positions and ranks are counted as their columns say; what is
undefined is null. A comparison has the same tables with a first column `model`. Parquet files carry their provenance:
model, counts, settings, version.
"""


def write_tables(path: Path) -> None:
    """The page, question by question."""
    seen: set[str] = set()
    parts = [INTRODUCTION]
    for question in QUESTIONS.values():
        parts += [f"## {question.__name__}", "", (question.__doc__ or "").split("\n")[0], ""]
        parts += [_table(schema, seen) for schema in question.tables]
    path.write_text("\n".join(parts), encoding="utf-8")


def write_questions(path: Path) -> None:
    """The questions' classes, for the Python reference."""
    lines = [f".. autoclass:: detoklens.{question.__name__}" for question in QUESTIONS.values()]
    path.write_text("\n".join(["```{eval-rst}", *lines, "```", ""]), encoding="utf-8")


def _table(schema: Schema, seen: set[str]) -> str:
    """The columns of one table; one that several questions share is described once."""
    if schema.name in seen:
        return f"`{schema.name}`: as above.\n"
    seen.add(schema.name)
    rows = [f"| `{column.name}` | {column.dtype} | {_cell(column.meaning)} |" for column in schema.columns]
    head = [f"### {schema.name}", "", schema.question, "", "| column | type | meaning |", "|---|---|---|"]
    return "\n".join([*head, *rows, ""])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
