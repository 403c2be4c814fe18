"""The tutorial, followed literally in an empty folder, prints what it shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_notebooks import assert_same

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.usefixtures("shared_answers")
def test_every_command_and_cell_gives_what_the_page_shows(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    monkeypatch.chdir(tmp_path)
    from run_tutorial import BLOCK, run

    page = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    assert len(BLOCK.findall(page)) > 10
    assert_same(run(page), page)
