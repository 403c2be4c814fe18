"""Run the notebooks in docs/notebooks and save their outputs: `python docs/run_notebooks.py [NAME]...`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent / "notebooks"
SECONDS = 300  # per cell


def run(path: Path, folder: Path) -> nbformat.NotebookNode:
    """Run the notebook in a new empty folder and return it with only the outputs that are the same in every run."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=SECONDS, kernel_name="python3", resources={"metadata": {"path": folder}}).execute()
    for cell in notebook.cells:
        cell.metadata.clear()
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if lasts(output)]
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return notebook


def lasts(output: nbformat.NotebookNode) -> bool:
    """Whether an output is the same in every run; stderr and cleared progress bars are not."""
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
