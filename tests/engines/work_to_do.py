"""Tasks for engines: pure functions of this module, as workers import them by name."""

import os
import signal
import time
from pathlib import Path

import numpy as np

from detoklens.errors import CorpusError


def square(number: int) -> int:
    return number * number


def first_waits_for_last(task: tuple[str, int, int]) -> int:
    """Task 0 answers only after the last task has begun, whatever the machine's speed."""
    folder, number, tasks = task
    Path(folder, str(number)).touch()
    while number == 0 and not Path(folder, str(tasks - 1)).exists():
        time.sleep(0.01)
    return number


def die_once(mark: str) -> str:
    """Kill this worker the first time, answer the second."""
    path = Path(mark)
    if not path.exists():
        path.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return path.name


def die_always(number: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return number


def end_always(number: int) -> int:
    """End this worker as an error of its own would."""
    os._exit(1)


def refuse(number: int) -> int:
    if number == 3:
        raise CorpusError("task 3 is bad")
    return number


def ask_too_much(number: int) -> int:
    """More memory than any machine has, 2^50 bytes."""
    return np.empty(1 << 50, np.uint8).size


def break_down(number: int) -> int:
    raise ZeroDivisionError(f"task {number}")


def write_process_id(folder: str) -> None:
    Path(folder, "worker.pid").write_text(str(os.getpid()))
    time.sleep(600)
