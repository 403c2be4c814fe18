"""Runs the notebooks of docs/notebooks anew and writes their outputs: `python docs/run_notebooks.py [NAME]...`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent / "notebooks"
SECONDS = 300  # for one cell


def run(path: Path, folder: Path) -> nbformat.NotebookNode:
    """The notebook with fresh outputs, run in an empty folder of its own; nothing that differs from run to run."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=SECONDS, kernel_name="python3", resources={"metadata": {"path": folder}}).execute()
    for cell in notebook.cells:
        cell.metadata.clear()
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if lasts(output)]
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return notebook


def lasts(output: nbformat.NotebookNode) -> bool:
    """Whether it is there in every run: not a line on stderr, nor the cleared line of a progress bar."""
    if output.output_type == "stream":
        return output.name == "stdout"
    return output.output_type != "display_data" or output.data.get("text/plain") != ""


def main() -> None:
    for path in sorted(FOLDER.glob("*.ipynb")):
        if len(sys.argv) == 1 or path.stem in sys.argv[1:]:
            with tempfile.TemporaryDirectory() as folder:
                nbformat.write(run(path, Path(folder)), path)


if __name__ == "__main__":
    main()
