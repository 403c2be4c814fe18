"""An address-space limit that is too small gives a one-line error before any library is loaded."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest


def run_limited(size: int, *words: str) -> subprocess.CompletedProcess[str]:
    return run_python(size, "from detoklens.__main__ import main; main()", *words)


def run_python(size: int, code: str, *words: str) -> subprocess.CompletedProcess[str]:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (size, size))

    command = [sys.executable, "-c", code, *words]
    return subprocess.run(command, capture_output=True, text=True, preexec_fn=limit, check=False)


@pytest.mark.parametrize("size", [300_000_000, 1_000_000_000, 2_500_000_000])
def test_too_little_is_one_line(size: int) -> None:
    done = run_limited(size, "shape", "demo")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"detoklens: the address space is limited to {size / 1e9:.1f} GB, too little to load")
    assert "raise `ulimit -v`" in line


def test_help_needs_less() -> None:
    assert run_limited(1_000_000_000, "--version").returncode == 0


@pytest.mark.parametrize(
    ("size", "call"),
    [
        (300_000_000, "detoklens.load"),
        (1_000_000_000, "detoklens.study('demo')"),
        (2_500_000_000, "from detoklens import Auroc"),
    ],
)
def test_python_says_so_in_one_line(size: int, call: str) -> None:
    """Nothing is loaded: with 1 GB, pyarrow could not start a thread and the demo's counts seemed damaged."""
    code = f"import detoklens, sys\ntry:\n    {call}\nexcept detoklens.DetokLensError as error:\n    print(error)"
    done = run_python(size, f"{code}\nassert 'numpy' not in sys.modules")
    assert (done.returncode, done.stderr) == (0, "")
    (line,) = done.stdout.splitlines()
    assert line.startswith(f"the address space is limited to {size / 1e9:.1f} GB, too little to load")
