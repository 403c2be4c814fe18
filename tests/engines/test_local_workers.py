"""Workers of the local engine never read the script that uses them, and end with the process that started them."""

import os
import signal
import subprocess
import sys
import threading
import time
from multiprocessing import Pipe
from pathlib import Path

import pytest

from detoklens.engines import LocalEngine, Worker, work

SCRIPT = """
import sys
from detoklens.engines import open_engine
from tests.engines import work_to_do
with open_engine("local", 2) as engine:
    list(engine.run(work_to_do.write_process_id, [sys.argv[1]]))
"""


UNGUARDED = """
from detoklens.engines import open_engine
from tests.engines import work_to_do
with open_engine("local", 2) as engine:
    print(sorted(engine.run(work_to_do.square, range(4))))
"""


def start(script: Path, text: str, *arguments: Path, **options: object) -> subprocess.Popen[str]:
    script.write_text(text)
    root = Path(__file__).resolve().parents[2]
    paths = os.pathsep.join(map(str, (root, root / "src")))
    return subprocess.Popen([sys.executable, script, *arguments], env=os.environ | {"PYTHONPATH": paths}, **options)


def test_a_script_needs_no_guard_and_is_not_read_again_by_workers(tmp_path: Path) -> None:
    script = start(tmp_path / "script.py", UNGUARDED, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8")
    output, errors = script.communicate(timeout=120)
    assert (script.returncode, errors) == (0, "")
    assert output == "[0, 1, 4, 9]\n"


def test_a_killed_parent_leaves_no_worker(tmp_path: Path) -> None:
    parent = start(tmp_path / "parent.py", SCRIPT, tmp_path)
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


@pytest.mark.parametrize("told_first", [False, True])
def test_a_worker_whose_starter_is_gone_ends_without_a_word(told_first: bool) -> None:
    ours, its = Pipe()
    if told_first:
        ours.send((str, 1))
    ours.close()
    work(its)


@pytest.mark.usefixtures("heard_interrupts")
@pytest.mark.parametrize("seconds", [0, 0.02, 0.1])
def test_an_interrupt_while_a_worker_starts_is_not_for_the_worker(
    seconds: float, capfd: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C goes to all processes of a terminal; a worker is then still importing."""
    worker = Worker()
    try:
        time.sleep(seconds)
        os.kill(worker.process.pid, signal.SIGINT)
        worker.connection.send((abs, -3))
        assert worker.connection.recv() == 3
    finally:
        worker.stop()
    assert capfd.readouterr().err == ""
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, set())  # this process still hears it


@pytest.mark.usefixtures("heard_interrupts")
def test_an_interrupt_that_another_thread_takes_waits_for_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocked in the thread that starts a process, it goes to another one, and is heard in the main thread even so."""
    begun: list[subprocess.Popen[bytes]] = []

    class Interrupted(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *arguments: object, **options: object) -> None:
            taker = threading.Thread(target=_take_an_interrupt)
            taker.start()
            taker.join()
            super().__init__(*arguments, **options)  # type: ignore[arg-type]
            begun.append(self)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    engine = LocalEngine(2)
    with engine, pytest.raises(KeyboardInterrupt):
        list(engine.run(abs, [-3]))
    assert len(begun) == 1
    assert begun[0].returncode == -signal.SIGKILL  # started, and stopped with the engine


def _take_an_interrupt() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.raise_signal(signal.SIGINT)
