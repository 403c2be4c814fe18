"""Every example of the pages about Python and of the README runs, in the order of the page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
HOWTO = ("checkpoint", "training-steps", "figure", "in-memory")
PAGES = ["README.md", "docs/python.md", *(f"docs/howto/{name}.md" for name in HOWTO)]
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.usefixtures("only_svg")
def test_the_examples_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))
    assert blocks
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, page, "exec"), names)
