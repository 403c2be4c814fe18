"""`detoklens layers --out` that is killed goes on where it was: what was finished is not done again."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl

from detoklens.questions.layers_run import Measuring
from tests.command_line import run

ASKED = ("layers", "demo", "--triples", "200", "--bootstrap", "20", "--workers", "1")
FINISHED = 4  # heads and MLPs that were off
TABLES = ("twins_by_layer", "twins_by_component")


def wait_for_parts(out: Path, process: subprocess.Popen[bytes]) -> None:
    while len(list(out.glob(".layers-*.parts/off-*/*.npz"))) < FINISHED:
        assert process.poll() is None, "it ended before it could be killed"
        time.sleep(0.005)


def test_a_killed_run_goes_on_where_it_was(tmp_path, monkeypatch):
    out, alone = tmp_path / "out", tmp_path / "alone"
    command = [sys.executable, "-m", "detoklens", *ASKED, "--out", str(out)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        wait_for_parts(out, process)
        process.send_signal(signal.SIGKILL)
    assert not list(out.glob("*.parquet"))
    ranked: list[int] = []
    ranks = Measuring._ranks
    monkeypatch.setattr(Measuring, "_ranks", lambda self, *given: ranked.append(1) or ranks(self, *given))
    run(*ASKED, "--out", out)
    again = len(ranked)
    assert not list(out.glob(".layers-*"))
    run(*ASKED, "--out", alone)
    assert again <= len(ranked) - again - (3 * 3 + 2 * FINISHED), "every layer, and those that were off"
    for name in TABLES:
        assert pl.read_parquet(out / f"{name}.parquet").equals(pl.read_parquet(alone / f"{name}.parquet"))
