"""Where compiled loops can't be kept they are compiled all the same, and one line says so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba import typeof

import detoklens
from detoklens.kernels.ranking import take_places

PACKAGE = Path(detoklens.__file__).parent
NO_HOME = "/proc/nowhere"  # not even root can make a folder there

USE_A_LOOP = """
import numpy as np
from detoklens.kernels.tokens import add_token_counts

totals = np.zeros(4, np.int64)
add_token_counts(np.array([1, 3, 3], np.uint32), totals)
assert totals.tolist() == [0, 1, 0, 2]
"""


@pytest.fixture
def installed_by_another(tmp_path) -> dict[str, str]:
    """The environment of somebody without a home who may not write into the package; temporary files are welcome."""
    package = tmp_path / "package" / "detoklens"
    package.mkdir(parents=True)
    for path in PACKAGE.iterdir():
        if path.name != "kernels":
            (package / path.name).symlink_to(path)
    (package / "kernels").mkdir()
    for path in (PACKAGE / "kernels").glob("*.py"):
        (package / "kernels" / path.name).write_bytes(path.read_bytes())
    (package / "kernels" / "__pycache__").write_text("a file, so that no folder can be made here")
    (tmp_path / "temporary").mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA", "XDG", "PYTHON"))}
    return kept | {"PYTHONPATH": str(package.parent), "HOME": NO_HOME, "TMPDIR": str(tmp_path / "temporary")}


def run(arguments: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False)


def test_without_a_home_loops_are_compiled_for_the_run_and_one_line_says_so(installed_by_another):
    asked = ["-m", "detoklens", "lexicon", "demo", "--heads", "0", "--top", "3", "--workers", "2", "--format", "csv"]
    done = run(asked, installed_by_another)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 4
    assert done.stderr.count("for this run only; set NUMBA_CACHE_DIR") == 1, "workers are silent"
    assert list(Path(installed_by_another["TMPDIR"]).iterdir()) == []


def test_without_any_place_loops_are_compiled_all_the_same(installed_by_another):
    done = run(["-c", f"import tempfile\ntempfile.tempdir = {NO_HOME!r}{USE_A_LOOP}"], installed_by_another)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("\n") == 1
    assert "again in every process; set NUMBA_CACHE_DIR" in done.stderr


def test_a_disk_that_takes_no_more_stops_no_answer(installed_by_another, tmp_path):
    """Where files can't grow the loops are compiled, and no index is left that names what was not kept."""
    limited = f"import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000)){USE_A_LOOP}"
    kept = tmp_path / "kept"
    done = run(["-c", limited], installed_by_another | {"NUMBA_CACHE_DIR": str(kept)})
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("\n") == 1
    assert "compiled loops are not kept: File too large" in done.stderr
    assert [path.name for path in kept.rglob("*") if path.is_file()] == []


def test_people_at_a_terminal_are_told_that_the_first_run_compiles(installed_by_another, tmp_path):
    environment = installed_by_another | {"NUMBA_CACHE_DIR": str(tmp_path / "kept")}
    assert (
        said_at_a_terminal(USE_A_LOOP, environment).count("detoklens: compiling the loops of this command, once") == 1
    )
    assert said_at_a_terminal(USE_A_LOOP, environment) == ""


def said_at_a_terminal(script: str, environment: dict[str, str]) -> str:
    """What a script writes to stderr where that is a terminal."""
    near, far = os.openpty()
    with os.fdopen(near, "rb", buffering=0) as terminal:
        done = subprocess.run([sys.executable, "-c", script], env=environment, stderr=far, check=False)
        os.write(far, b"END")
        os.close(far)
        assert done.returncode == 0
        return terminal.read(100_000).decode().removesuffix("END")


def test_where_loops_can_be_kept_nothing_is_said(installed_by_another, tmp_path):
    kept = tmp_path / "kept"
    done = run(["-c", USE_A_LOOP], installed_by_another | {"NUMBA_CACHE_DIR": str(kept)})
    assert (done.returncode, done.stderr) == (0, "")
    assert {path.suffix for path in kept.rglob("*") if path.is_file()} == {".nbi", ".nbc"}


def test_a_loop_for_other_loops_refuses_a_call_from_python() -> None:
    arguments = np.array([5], np.uint64), np.empty(64, np.int64)
    for _ in range(2):  # before it is compiled, and then
        with pytest.raises(TypeError, match="take_places is only compiled for other loops"):
            take_places(*arguments)
        take_places.compile(tuple(map(typeof, arguments)))


def test_extensions_of_numba_are_left_to_those_who_need_them():
    """Our loops, once kept, load none, and a function of someone else's still finds them."""
    used = """
from numba import njit
from numba.core import entrypoints
assert not entrypoints._already_initialized
njit(lambda number: number + 1)(1)
assert entrypoints._already_initialized
"""
    run(["-c", USE_A_LOOP], dict(os.environ))
    done = run(["-c", USE_A_LOOP + used], dict(os.environ))
    assert done.returncode == 0, done.stderr
