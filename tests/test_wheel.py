"""The wheel works with only its runtime dependencies, and the sdist contains the whole repository.

The wheel's environment links to the installed runtime dependencies and contains nothing else: no torch, no
transformers. `make release-check` installs both from scratch, from the package index.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution
from pathlib import Path

import pytest

from tests.dependencies import at_run_time, come_along

ROOT = Path(__file__).resolve().parent.parent
LARGEST_WHEEL = 12_000_000


def quiet(*command: object, **settings: object) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **settings)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """A folder with the wheel and the sdist."""
    folder = tmp_path_factory.mktemp("built")
    quiet(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", folder, cwd=ROOT)
    return folder


@pytest.fixture(scope="module")
def wheel(built) -> Path:
    return next(built.glob("*.whl"))


def test_the_wheel_is_small(wheel):
    assert wheel.stat().st_size < LARGEST_WHEEL


def test_the_wheel_has_the_explorers_page(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {"detoklens/explorer/page/index.html", "detoklens/explorer/page/built.json"} <= set(names)
    assert not any("node_modules" in name for name in names)


def test_the_sdist_has_every_file_of_the_repository(built):
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("NOT TESTED: which files belong to the repository is known in a clone, where git is there")
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    kept = quiet("git", "ls-files", "-z", cwd=ROOT).split("\0")
    assert {name for name in kept if (ROOT / name).is_file()} - names == set()
    assert [name for name in names if "node_modules" in name or name.endswith(".pyc")] == []


def top_names(installed: Distribution) -> Iterator[str]:
    """What a distribution has put into its folder of packages: modules, libraries, metadata."""
    tops = {path.parts[0] for path in installed.files or []}
    yield from sorted(tops - {"..", "__pycache__"})


def environment(folder: Path) -> Path:
    """The Python of a new environment that has the run-time dependencies, as they are installed here, and no more."""
    venv.create(folder, symlinks=True)
    packages = next(folder.glob("lib/python*/site-packages"))
    for each in come_along(at_run_time()).values():
        for name in top_names(each):
            (packages / name).symlink_to(each.locate_file(name))
    return folder / "bin" / "python"


def test_the_wheel_runs_alone(wheel, tmp_path, monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    python = environment(tmp_path / "venv")
    of_it = (sys.executable, "-m", "pip", "--python", python)
    quiet(*of_it, "install", "--quiet", "--no-index", "--no-deps", wheel)
    quiet(*of_it, "check")
    installed = quiet(*of_it, "list", "--format", "freeze").lower().splitlines()
    assert any(line.startswith("detoklens==") for line in installed)
    assert not any(line.startswith(("torch==", "transformers==")) for line in installed)
    detoklens = tmp_path / "venv" / "bin" / "detoklens"
    model = ROOT / "tests" / "data" / "tiny-gpt2"
    answer = quiet(detoklens, "partners", model, "ion", "--top", "2", "--format", "csv", cwd=tmp_path)
    assert len(answer.splitlines()) == 1 + 3 * 2
    refused = subprocess.run([detoklens, "verify", model], capture_output=True, text=True)
    assert refused.returncode == 1
    assert "pip install 'detoklens[model]'" in refused.stderr
