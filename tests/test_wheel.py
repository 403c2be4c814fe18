"""An installed wheel with the runtime dependencies alone does its work: no torch, no transformers."""

from __future__ import annotations

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LARGEST_WHEEL = 12_000_000


def quiet(*command: object, **settings: object) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **settings)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    quiet(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT)
    return next(folder.glob("*.whl"))


def test_the_wheel_is_small(wheel):
    assert wheel.stat().st_size < LARGEST_WHEEL


def test_the_wheel_has_the_explorers_page(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {"detoklens/explorer/page/index.html", "detoklens/explorer/page/built.json"} <= set(names)
    assert not any("node_modules" in name for name in names)


def test_the_wheel_runs_alone(wheel, tmp_path):
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    quiet(python, "-m", "pip", "install", "--quiet", wheel)
    installed = quiet(python, "-m", "pip", "list", "--format", "freeze").lower()
    assert not any(line.startswith(("torch==", "transformers==")) for line in installed.splitlines())
    detoklens = tmp_path / "venv" / "bin" / "detoklens"
    model = ROOT / "tests" / "data" / "tiny-gpt2"
    answer = quiet(detoklens, "partners", model, "ion", "--top", "2", "--format", "csv", cwd=tmp_path)
    assert len(answer.splitlines()) == 1 + 3 * 2
    refused = subprocess.run([detoklens, "verify", model], capture_output=True, text=True)
    assert refused.returncode == 1
    assert "pip install 'detoklens[model]'" in refused.stderr
