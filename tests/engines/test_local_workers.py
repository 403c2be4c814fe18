"""Workers of the local engine end with the process that started them, even where that is killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

SCRIPT = """
import sys
from detoklens.engines import open_engine
from tests.engines import work_to_do
if __name__ == "__main__":
    with open_engine("local", 2) as engine:
        list(engine.run(work_to_do.write_process_id, [sys.argv[1]]))
"""


def test_a_killed_parent_leaves_no_worker(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(SCRIPT)
    root = Path(__file__).resolve().parents[2]
    paths = (root, root / "src")
    parent = subprocess.Popen(
        [sys.executable, script, tmp_path], env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))}
    )
    mark = tmp_path / "worker.pid"
    _wait_until(lambda: mark.exists() and mark.read_text() != "")
    worker = int(mark.read_text())
    assert _is_alive(worker)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    _wait_until(lambda: not _is_alive(worker))


def _wait_until(happened: object, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not happened():  # type: ignore[operator]
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def _is_alive(process_id: int) -> bool:
    try:
        state = Path(f"/proc/{process_id}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"
