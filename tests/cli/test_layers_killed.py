"""`detoklens layers --out` that is killed goes on where it was: what was finished is not done again."""

from __future__ import annotations

import signal
import subprocess
import sys

import polars as pl

from detoklens.questions.layers.compute import Measuring
from tests.command_line import run

ASKED = ("layers", "demo", "--triples", "60", "--candidates", "100", "--bootstrap", "20", "--workers", "1")
FINISHED = 4  # heads and MLPs that were off
TABLES = ("twins_by_layer", "twins_by_component")

# The command, killed when so many parts are there: by what it has done, not by a clock.
KILLED = """
import os, signal, sys
from detoklens.__main__ import main
from detoklens.tables.files import Parts

save = Parts.save

def save_some(parts, number, arrays):
    save(parts, number, arrays)
    if parts.folder.name.startswith("off-") and len(list(parts.folder.glob("*.npz"))) == int(finished):
        os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    finished = sys.argv.pop(1)
    Parts.save = save_some
    main()
"""


def test_a_killed_run_goes_on_where_it_was(tmp_path, monkeypatch):
    out, alone = tmp_path / "out", tmp_path / "alone"
    (tmp_path / "killed.py").write_text(KILLED)
    command = [sys.executable, str(tmp_path / "killed.py"), str(FINISHED), *ASKED, "--out", str(out)]
    ended = subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert ended.returncode == -signal.SIGKILL
    assert len(list(out.glob(".layers-*.parts/off-*/*.npz"))) == FINISHED
    assert not list(out.glob("*.parquet"))
    ranked: list[int] = []
    ranks = Measuring._ranks
    monkeypatch.setattr(Measuring, "_ranks", lambda self, *given: ranked.append(1) or ranks(self, *given))
    run(*ASKED, "--out", out)
    again = len(ranked)
    assert not list(out.glob(".layers-*"))
    run(*ASKED, "--out", alone)
    assert again == len(ranked) - again - (3 * 5 + 2 * FINISHED), "every layer, and those that were off"
    for name in TABLES:
        assert pl.read_parquet(out / f"{name}.parquet").equals(pl.read_parquet(alone / f"{name}.parquet"))
