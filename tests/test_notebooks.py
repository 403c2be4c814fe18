"""The notebooks, run in a fresh kernel, reproduce their committed text and numbers.

What they do not show is left out: figures of a report in other formats, and answers that another page computed.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
QUICKER = """
import sys
sys.path.append({root!r})
import detoklens.parallel, detoklens.report.drawing, pathlib, tests.answers
detoklens.parallel.available_cores = lambda: 1
detoklens.report.drawing.FORMATS = ("svg",)
detoklens.questions.study.Study._computed = tests.answers.sharing_answers(pathlib.Path({answers!r}))
detoklens.report.drawing.draw_files = tests.answers.SharingDrawings(pathlib.Path({answers!r}))
del detoklens, pathlib, tests, sys
"""  # before a notebook's first cell
PICTURE = re.compile(r"<svg.*?</svg>", re.DOTALL)


def shown(notebook: nbformat.NotebookNode) -> list[list[str]]:
    """What each cell shows, as text, a picture only by that it is there."""
    return [[_text(output) for output in cell.get("outputs", [])] for cell in notebook.cells]


def _text(output: nbformat.NotebookNode) -> str:
    if output.output_type == "stream":
        return output.text
    data = output.get("data", {})
    if "image/svg+xml" in data:
        return "<picture>"
    return PICTURE.sub("<picture>", data.get("text/html", data.get("text/plain", "")))


def assert_same(found: str, kept: str) -> None:
    """The same words, and numbers that differ by rounding at the most."""
    assert NUMBER.sub("#", found) == NUMBER.sub("#", kept)
    numbers = [[float(number) for number in NUMBER.findall(text)] for text in (found, kept)]
    assert numbers[0] == pytest.approx(numbers[1], rel=2e-3, abs=2e-3)


@pytest.fixture
def quicker(answers_folder, tmp_path_factory, monkeypatch) -> None:
    """IPython runs what lies in its folder before the first cell."""
    folder = tmp_path_factory.mktemp("ipython")
    startup = folder / "profile_default" / "startup"
    startup.mkdir(parents=True)
    before = QUICKER.format(root=str(ROOT), answers=str(answers_folder))
    (startup / "quicker.py").write_text(before, encoding="utf-8")
    monkeypatch.setenv("IPYTHONDIR", str(folder))


@pytest.mark.usefixtures("quicker")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebook_shows_what_it_was_committed_with(path, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    from run_notebooks import run

    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    kept = nbformat.read(path, as_version=4)
    for found, before in zip(shown(run(path, tmp_path)), shown(kept), strict=True):
        assert len(found) == len(before)
        for one, other in zip(found, before, strict=True):
            assert_same(one, other)


def test_no_output_is_an_error_and_every_answer_has_its_picture():
    for path in NOTEBOOKS:
        text = path.read_text(encoding="utf-8")
        assert '"output_type": "error"' not in text
        assert "http" not in re.sub(r"http://www\.w3\.org/\S+", "", text)
