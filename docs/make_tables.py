"""Write the pages generated from the catalogue of questions: `python docs/make_tables.py`.

The tables with the meaning of every column and the list of figures are committed, so that they can be read without the
site. The list of classes is for the site only.
"""

from __future__ import annotations

from pathlib import Path

from make_families import families_page

from detoklens.questions.base import Question
from detoklens.questions.catalogue import QUESTIONS, TOPICS
from detoklens.tables.schema import Schema

DOCS = Path(__file__).parent
TABLES = """# Tables

Every number in an answer is in a table with a declared schema: `answer.tables["NAME"]` in Python, `NAME.parquet` and
`NAME.csv` in the `--out` folder. The column descriptions say how heads, positions and ranks are counted; undefined
values are null. A comparison has the same tables with an extra first column, `model`. Parquet files contain their
provenance: model, counts, settings, version.
"""
FIGURES = """# Gallery

This page lists every figure that the package draws. On the site, which `make site` builds into `site/`, each has its
own page with the figure drawn for the bundled demo model, its command and how to read it.

In Python, draw a figure with `answer.figure("NAME")`; on the command line, with `--figure FILE.svg --figure-name NAME`.
Names that begin with `compare` compare several models: use `dl.compare`, or the command `compare`.
"""


def tables_page() -> str:
    """Every table, grouped by question."""
    seen: set[str] = set()
    parts = [TABLES]
    for question in QUESTIONS.values():
        parts += [f"## {question.__name__}", "", (question.__doc__ or "").split("\n")[0], ""]
        parts += [_table(schema, seen) for schema in question.tables]
    return "\n".join(parts)


def figures_page() -> str:
    """The names of all figures, grouped by topic."""
    parts = [FIGURES]
    for topic, names in TOPICS.items():
        rows = [row for name in names for row in _figure_rows(QUESTIONS[name])]
        parts += [f"## {topic}", "", "| figure | name | question |", "|---|---|---|", *rows, ""]
    return "\n".join(parts)


def _figure_rows(question: type[Question]) -> list[str]:
    specs = (*question.figures, *question.compared_figures)
    return [f"| {_cell(spec.title)} | `{spec.name}` | `dl.{question.__name__}` |" for spec in specs]


def write_questions(path: Path) -> None:
    """Write the list of question classes for the Python reference."""
    lines = [f".. autoclass:: detoklens.{question.__name__}" for question in QUESTIONS.values()]
    path.write_text("\n".join(["```{eval-rst}", *lines, "```", ""]), encoding="utf-8")


def _table(schema: Schema, seen: set[str]) -> str:
    """The columns of one table; a table shared by several questions is described once."""
    if schema.name in seen:
        return f"`{schema.name}`: as above.\n"
    seen.add(schema.name)
    rows = [f"| `{column.name}` | {column.dtype} | {_cell(column.meaning)} |" for column in schema.columns]
    head = [f"### {schema.name}", "", schema.question, "", "| column | type | meaning |", "|---|---|---|"]
    return "\n".join([*head, *rows, ""])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


PAGES = {"tables.md": tables_page, "gallery.md": figures_page, "families.md": families_page}
"""The committed pages and the functions that generate them."""


if __name__ == "__main__":
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")
