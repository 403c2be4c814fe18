"""Plain scripts, `python -c`, here-documents, IPython and notebooks use several workers without a `__main__` guard."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

COUNTING = """
import detoklens as dl
from detoklens.corpus.count import count_corpus
from detoklens.engines import open_engine

print("begun")
study = dl.study("demo", documents=5, workers=2)
study.ask(dl.Auroc(tokens=range(300, 340), bootstrap=0, heads=[0]))
with open_engine("local", 2) as engine:
    print(count_corpus(["words.txt"], study.layer.vocabulary, "counts", engine=engine).totals()["documents"])
"""
"""A measure over tokens, and counting with processes."""

PROGRAM = f"""{COUNTING}
from detoklens.questions.base import ReportEntry
from detoklens.report import drawing, folder

print(len(dl.compare({{"start": "demo@0", "end": "demo"}}, dl.Attention([3], heads=[0]), documents=5, workers=2).tables))
drawing.FORMATS = ("svg",)
folder.report_entries = lambda study, layers: [ReportEntry(dl.Attention([3], heads=[0]))]
print(study.report("report", heads=[0]).name)
print("done")
"""
"""And one over documents, and a report of one section: all of it takes long."""

COUNTED = ["begun", "[1]"]
SAID = [*COUNTED, "2", "report.html", "done"]


def run_program(folder: Path, *command: str, given: str | None = None) -> list[str]:
    """What a program says on stdout; all of it only once, since no worker runs it again."""
    (folder / "words.txt").write_text("a nation\n")
    environment = os.environ | {"IPYTHONDIR": str(folder / "ipython"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *command],
        input=given,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_plain_script(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(PROGRAM)
    assert run_program(tmp_path, "script.py") == SAID


def test_python_c(tmp_path: Path) -> None:
    assert run_program(tmp_path, "-c", COUNTING) == COUNTED


def test_a_here_document(tmp_path: Path) -> None:
    assert run_program(tmp_path, "-", given=COUNTING) == COUNTED


def test_ipython(tmp_path: Path) -> None:
    pytest.importorskip("IPython", reason="IPython is not installed: scripts in IPython are NOT TESTED")
    (tmp_path / "script.py").write_text(COUNTING)
    assert run_program(tmp_path, "-m", "IPython", "--no-banner", "script.py") == COUNTED


def test_a_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed: notebooks are NOT TESTED")
    client = pytest.importorskip("nbclient", reason="nbclient is not installed: notebooks are NOT TESTED")
    (tmp_path / "words.txt").write_text("a nation\n")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(PROGRAM)])
    client.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    said = "".join(output.text for output in notebook.cells[0].outputs if output.get("name") == "stdout")
    assert said.split() == SAID
