"""`import detoklens` and `detoklens --help` start fast: they import nothing heavy, and never torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import detoklens

SOURCE = Path(detoklens.__file__).read_text(encoding="utf-8")
HEAVY = ("torch", "transformers", "matplotlib", "numba", "numpy", "polars", "scipy", "pyarrow", "ray")
NETWORK = ("huggingface_hub", "httpx", "requests", "urllib3", "http.client", "ssl")

LOOK = "import sys; print([name for name in {names!r} if name in sys.modules])"


def imported(code: str, names: tuple[str, ...]) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code + "\n" + LOOK.format(names=names)], capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()[-1]


HELP = """
import sys
sys.argv = ["detoklens", "--help"]
from detoklens.cli.app import main
try:
    main()
except SystemExit:
    pass
"""


@pytest.mark.parametrize("code", ["import detoklens", "import detoklens; dir(detoklens)", HELP])
def test_nothing_heavy_is_imported(code):
    assert imported(code, HEAVY + NETWORK) == "[]"


def test_loading_and_asking_imports_no_torch(tmp_path):
    from tests.layers import random_first_layer, write_gpt2

    write_gpt2(tmp_path, random_first_layer())
    load = f"import detoklens; layer = detoklens.load({str(tmp_path)!r})"
    ask = "layer.terms([1, 2]).attention(); layer.affinity([1])"
    assert imported(f"{load}; {ask}", ("torch", "transformers", "matplotlib", "huggingface_hub", "httpx")) == "[]"


def test_no_question_imports_matplotlib_before_it_draws():
    code = "from detoklens.questions.catalogue import QUESTIONS; list(QUESTIONS.values())"
    assert imported(code, ("matplotlib", "torch", "transformers")) == "[]"


def test_opening_counts_imports_no_pandas():
    ask = "import detoklens; counts = detoklens.Counts.open('demo'); counts.bigrams; counts.predecessors(7)"
    assert imported(ask, ("pandas",)) == "[]"


def test_type_checkers_see_every_public_name():
    stub = ast.parse(Path(detoklens.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    names = [
        alias.asname for statement in stub.body if isinstance(statement, ast.ImportFrom) for alias in statement.names
    ]
    assert sorted([*names, "__version__"]) == sorted(detoklens.__all__), "run `make docs`"


def test_windows_is_told_in_one_line(monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(ImportError, match="Linux and macOS; on Windows, use WSL"):
        exec(compile(SOURCE, "detoklens", "exec"), {"__name__": "detoklens"})


def test_every_public_name_is_there():
    code = "import detoklens\nfor name in detoklens.__all__: getattr(detoklens, name)\nprint('all there')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "all there\n"
