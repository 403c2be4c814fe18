"""Every README command works for a user without a home, in an installation owned by root, with one writable folder."""

from __future__ import annotations

import json
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
from tests.command_line import Result, run
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
"""Commands that run alone, with nowhere to keep compiled loops; the others share a cache and a process: quicker."""
IN_ONE_PROCESS = """
import json, sys
from dataclasses import asdict
from detoklens.report import drawing
from tests.command_line import call
from tests.spelled import shipping_few_words

drawing.FORMATS = ("svg",)
with shipping_few_words():
    for words in json.loads(sys.argv[1]):
        print(json.dumps(asdict(call(*words))), flush=True)
"""


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
    if Path(os.environ["NUMBA_CACHE_DIR"]).is_dir():
        shutil.copytree(os.environ["NUMBA_CACHE_DIR"], workplace / "temporary" / "loops")
    for path in (workplace, *workplace.iterdir(), *(workplace / "temporary").rglob("*")):
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    return found


def to_type(words: list[str]) -> list[str]:
    """A command of the README, with an output folder of its own."""
    plain = words[: words.index("--out")] if "--out" in words else words
    return [*plain, *(["--out", f"out-{README.index(words)}"] if words[0] == "count" else [])]


def of_the_table(command: str) -> list[str]:
    """A command that the README's table names, with what is at hand."""
    at_hand = {
        "MODEL": "model",
        "again=MODEL": "again=model",
        "COUNTS": "model-counts",
        "TEXT": "text.txt",
        "WORDS": "drugs.txt",
    }
    words = [at_hand.get(word, word) for word in IN_ITS_TABLE[command]]
    return [command, *words, *(["--out", f"out-{command}"] if command in ASKED else [])]


ASKED_HERE = [
    *map(to_type, README),
    *(of_the_table(command) for command in COMMANDS if command not in {words[0] for words in README}),
]


@pytest.fixture(scope="module")
def results(become_nobody, workplace, settings) -> dict[str, Result]:
    """What the commands that share a process left behind."""
    together = [words for words in ASKED_HERE if words[0] not in COMPILING]
    paths = os.pathsep.join((settings["PYTHONPATH"], str(ROOT)))
    env = settings | {"NUMBA_CACHE_DIR": str(workplace / "temporary" / "loops"), "PYTHONPATH": paths}
    command = [*become_nobody, "-c", IN_ONE_PROCESS, json.dumps(together)]
    done = subprocess.run(command, cwd=workplace, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = [Result(**json.loads(line)) for line in done.stdout.splitlines()]
    assert list((workplace / "temporary").glob("detoklens-*")) == [], "nothing stays"
    return dict(zip(map(" ".join, together), told, strict=True))


@pytest.mark.parametrize("words", [words for words in ASKED_HERE if words[0] not in COMPILING], ids=" ".join)
def test_commands(words, results):
    found = results[" ".join(words)]
    assert found.exit_code == 0, found.stderr
    assert found.stdout
    assert "Traceback" not in found.stderr
    assert "for this run only; set NUMBA_CACHE_DIR" not in found.stderr


@pytest.mark.parametrize("words", [words for words in ASKED_HERE if words[0] in COMPILING], ids=" ".join)
def test_commands_that_compile_loops_for_themselves(words, become_nobody, workplace, settings):
    command = [*become_nobody, "-m", "detoklens", *words]
    done = subprocess.run(command, cwd=workplace, env=settings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert "Traceback" not in done.stderr
    assert done.stderr.count("for this run only; set NUMBA_CACHE_DIR") == 1, "once, and workers are silent"
    assert list((workplace / "temporary").glob("detoklens-*")) == [], "nothing stays"
