"""Every example in the Python pages and the README runs, in page order, and their tables name what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import detoklens as dl
from detoklens.cli.app import topics

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


def test_the_tables_name_only_what_there_is():
    commands = {name for names in topics().values() for name in names}
    rows = re.findall(r"\| [^|]* \|([^|]*)\|$", table_of("README.md").partition("| command |")[2], re.MULTILINE)
    in_readme = {*re.findall(r"`([a-z]+)`", " ".join(rows))}
    in_python = {*re.findall(r"`dl\.(\w+)", table_of("docs/python.md"))}
    assert set() < in_readme <= commands
    assert set() < in_python <= {*dl.__all__}
