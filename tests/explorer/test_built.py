"""The page in the package is what `explorer-web/` builds."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from detoklens.explorer.bundle import PAGE

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCES = ROOT / "explorer-web"
NAMED = (
    "index.html",
    "package.json",
    "package-lock.json",
    "tsconfig.json",
    "vite.config.ts",
    "src",
    "public",
    "scripts",
)


def files_below(path: Path) -> list[Path]:
    return [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_the_page_was_built_from_these_sources():
    """Without Node: what the build wrote down of its sources and of its files is still so."""
    built = json.loads((PAGE / "built.json").read_text())
    paths = {path.relative_to(SOURCES).as_posix(): path for name in NAMED for path in files_below(SOURCES / name)}
    content = b"".join(
        name.encode() + b"\0" + paths[name].read_bytes() + b"\0" for name in sorted(paths, key=str.encode)
    )
    assert built["sources"] == digest(content), "explorer-web has changed: `make explorer-web` builds the page anew"
    found = {path.relative_to(PAGE).as_posix(): digest(path.read_bytes()) for path in files_below(PAGE)}
    del found["built.json"]
    assert built["files"] == found, "the built page was changed by hand: `make explorer-web` builds it anew"


def test_building_again_gives_the_same_page(tmp_path):
    if shutil.which("npm") is None or not (SOURCES / "node_modules").is_dir():
        pytest.skip("NOT BUILT AGAIN: Node or explorer-web/node_modules is missing; `make explorer-web` gets them")
    copy = tmp_path / "explorer-web"
    shutil.copytree(SOURCES, copy, ignore=shutil.ignore_patterns("node_modules"))
    (copy / "node_modules").symlink_to(SOURCES / "node_modules")
    made = subprocess.run(["npm", "run", "build"], cwd=copy, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout + made.stderr
    page = tmp_path / "src/detoklens/explorer/page"
    names = {path.relative_to(PAGE) for path in files_below(PAGE)}
    assert {path.relative_to(page) for path in files_below(page)} == names
    assert [str(name) for name in names if (page / name).read_bytes() != (PAGE / name).read_bytes()] == []


def test_the_page_asks_for_nothing_outside_its_folder():
    for path in files_below(PAGE):
        if path.suffix in (".html", ".css"):
            text = path.read_text(encoding="utf-8")
            assert "http://" not in text
            assert "https://" not in text
            assert 'src="/' not in text
            assert 'href="/' not in text


def test_the_page_says_the_servers_policy_itself():
    from detoklens.explorer.server import POLICY

    assert POLICY in (PAGE / "index.html").read_text(encoding="utf-8")
