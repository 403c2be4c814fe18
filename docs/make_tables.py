"""Writes what pages take from the registry of questions: `python docs/make_tables.py`.

Tables with every column's meaning and the list of figures are committed, so that they can be read without the site; the
classes are for the site alone.
"""

from __future__ import annotations

from pathlib import Path

from make_families import families_page

from detoklens.questions.base import Question
from detoklens.questions.catalogue import QUESTIONS, TOPICS
from detoklens.tables.schema import Schema

DOCS = Path(__file__).parent
TABLES = """# Tables

Every number of an answer stands in a table with a declared schema: `answer.tables["NAME"]` in Python, `NAME.parquet`
and `NAME.csv` in a folder that `--out` names. Heads, positions and ranks are counted as their columns say; what is
undefined is null. A comparison has the same tables with a first column `model`. Parquet files carry their provenance:
model, counts, settings, version.
"""
FIGURES = """# Gallery

Every figure that the package draws. This is the list; the site that `make site` builds into `site/` has in its place a
page for each of them, drawn on the model that comes with the package, with its command and how to read it.

In Python `answer.figure("NAME")` draws one of an answer's figures, on the command line `--figure FILE.svg` with
`--figure-name NAME`. Names that begin with `compare` are of several models: `dl.compare`, and the command `compare`.
"""


def tables_page() -> str:
    """Every table, question by question."""
    seen: set[str] = set()
    parts = [TABLES]
    for question in QUESTIONS.values():
        parts += [f"## {question.__name__}", "", (question.__doc__ or "").split("\n")[0], ""]
        parts += [_table(schema, seen) for schema in question.tables]
    return "\n".join(parts)


def figures_page() -> str:
    """The names of all figures, under what people ask."""
    parts = [FIGURES]
    for topic, names in TOPICS.items():
        rows = [row for name in names for row in _figure_rows(QUESTIONS[name])]
        parts += [f"## {topic}", "", "| figure | name | question |", "|---|---|---|", *rows, ""]
    return "\n".join(parts)


def _figure_rows(question: type[Question]) -> list[str]:
    specs = (*question.figures, *question.compared_figures)
    return [f"| {_cell(spec.title)} | `{spec.name}` | `dl.{question.__name__}` |" for spec in specs]


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


PAGES = {"tables.md": tables_page, "gallery.md": figures_page, "families.md": families_page}
"""The committed pages and what writes them."""


if __name__ == "__main__":
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")
