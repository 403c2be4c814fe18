"""Every README command works for a user without a home, in an installation owned by root, with one writable folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from detoklens.cli.app import topics
from tests.cli.test_full_disk import ASKED, READING
from tests.command_line import run
from tests.spelled import write_spelled
from tests.test_documented_commands import ROOT, furnish, to_run

COMMANDS = [name for names in topics().values() for name in names]

NOBODY = 65534
AS_NOBODY = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
MAY_READ = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
"""Where Python itself lives in root's home: to read everything, and to write no more than before."""

README = [words for words in to_run([ROOT / "README.md"]) if words[0] != "report"]  # which a small model has, too
IN_ITS_TABLE = {**ASKED, **READING, "explore": ("MODEL", "--export", "out-explorer")}
COMPILING = ("count", "partners")
"""Commands that have no place to keep compiled loops in, with workers and without; the others share one: quicker."""


def environment(workplace: Path) -> dict[str, str]:
    """Neither a home nor a place of one's own for what is kept between runs."""
    own = ("DETOKLENS_", "HOME", "XDG_", "NUMBA_", "MPL", "HF_", "PYTHON", "TMPDIR")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    (workplace / "temporary").mkdir()
    return kept | {
        "HOME": "/nonexistent",
        "PYTHONPATH": str(ROOT / "src"),
        "TMPDIR": str(workplace / "temporary"),
        "HF_HUB_OFFLINE": "1",
    }


@pytest.fixture(scope="module")
def become_nobody() -> list[str]:
    """The words before a command that make another user run it."""
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        pytest.skip("NOT TESTED: only root, with setpriv, can run commands as another user")
    for rights in ([], MAY_READ):
        words = [*AS_NOBODY, *rights, sys.executable]
        asked = [*words, "-c", "import os, sys; print(bool(os.geteuid()), os.access('/', os.W_OK), sys.base_prefix)"]
        told = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
        if told.strip() == f"True False {sys.base_prefix}":  # and not another Python that it fell back to
            return words
    pytest.skip("NOT TESTED: another user can't start this Python")


@pytest.fixture(scope="module")
def workplace() -> Iterator[Path]:
    """The one folder that may be written to."""
    with tempfile.TemporaryDirectory(prefix="another-user-") as name:
        folder = Path(name)
        furnish(folder)
        write_spelled(folder / "model")
        counting = ("count", folder / "texts", "--tokenizer", folder / "model", "--workers", "1")
        run(*counting, "--out", folder / "model-counts")
        yield folder


@pytest.fixture(scope="module")
def settings(workplace) -> dict[str, str]:
    found = environment(workplace)
    for path in (workplace, *workplace.iterdir()):
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    return found


def run_as_nobody(words: list[str], become_nobody, workplace, settings) -> None:
    command = [*become_nobody, "-m", "detoklens", *words]
    told = words[0] in COMPILING
    env = settings if told else settings | {"NUMBA_CACHE_DIR": str(workplace / "temporary" / "loops")}
    done = subprocess.run(command, cwd=workplace, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert "Traceback" not in done.stderr
    assert done.stderr.count("for this run only; set NUMBA_CACHE_DIR") == told, "once, and workers are silent"
    assert list((workplace / "temporary").glob("detoklens-*")) == [], "nothing stays"


@pytest.mark.parametrize("words", README, ids=" ".join)
def test_the_commands_of_the_readme(words, become_nobody, workplace, settings):
    out = ["--out", f"out-{README.index(words)}"] if words[0] == "count" else []
    plain = words[: words.index("--out")] if "--out" in words else words
    run_as_nobody([*plain, *out], become_nobody, workplace, settings)


@pytest.mark.parametrize("command", [command for command in COMMANDS if command not in {words[0] for words in README}])
def test_the_commands_that_its_table_names(command, become_nobody, workplace, settings):
    at_hand = {
        "MODEL": "model",
        "again=MODEL": "again=model",
        "COUNTS": "model-counts",
        "TEXT": "text.txt",
        "WORDS": "drugs.txt",
    }
    words = [at_hand.get(word, word) for word in IN_ITS_TABLE[command]]
    out = ["--out", f"out-{command}"] if command in ASKED else []
    run_as_nobody([command, *words, *out], become_nobody, workplace, settings)
