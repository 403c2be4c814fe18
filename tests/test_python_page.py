"""Every example in the Python pages and the README runs, in page order, and every question is covered."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from detoklens.questions.catalogue import QUESTIONS

ROOT = Path(__file__).resolve().parent.parent
HOWTO = ("checkpoint", "training-steps", "figure", "in-memory")
PAGES = ["README.md", "docs/python.md", *(f"docs/howto/{name}.md" for name in HOWTO)]
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.usefixtures("only_svg", "shared_answers")
def test_the_examples_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("detoklens.parallel.available_cores", lambda: 1)
    blocks = BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))
    assert blocks
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, page, "exec"), names)


def table_of(page: str) -> str:
    """The rows of a page's tables, as one text."""
    return "\n".join(line for line in (ROOT / page).read_text(encoding="utf-8").splitlines() if line.startswith("|"))


@pytest.mark.parametrize("name", [question.__name__ for question in QUESTIONS.values()])
def test_every_question_is_in_the_tables_of_python_and_of_the_readme(name):
    assert f"`dl.{name}(" in table_of("docs/python.md")
    assert f"`{name.lower()}`" in table_of("README.md")
