"""`detoklens auroc` that is killed leaves its shared arrays behind; the next one takes them away."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.command_line import run

ASKED = ("auroc", "demo", "--heads", "0", "--workers", "1", "--bootstrap", "0", "--format", "csv")


def wait_for_arrays(share: Path, process: subprocess.Popen[bytes]) -> None:
    while not list(share.rglob("*.npy")):
        assert process.poll() is None, "it ended before it could be killed"
        time.sleep(0.005)


def test_shared_arrays_of_a_killed_run_go_at_the_next_start(tmp_path):
    command = [sys.executable, "-m", "detoklens", *ASKED, "--share", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        wait_for_arrays(tmp_path, process)
        process.send_signal(signal.SIGKILL)
    assert list(tmp_path.rglob("*.npy")), "what the kill left"
    run(*ASKED, "--share", tmp_path)
    assert list(tmp_path.iterdir()) == []
