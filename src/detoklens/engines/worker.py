"""What a worker process does: it waits for a task, does it, answers, and ends with the process that started it."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

STDIN = 0


@dataclass(frozen=True)
class Failure:
    """An exception on its way to the process that gave the task."""

    error: Exception
    trace: str


def main(descriptor: int) -> None:
    """Work for the process at the other end of an inherited connection."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that waits
    threading.Thread(target=_end_with_parent, daemon=True).start()
    work(Connection(descriptor))


def work(connection: Connection) -> None:
    """Answer tasks until the other end of the connection is closed, as by the death of the process that holds it."""
    with suppress(EOFError, ConnectionError):
        while True:
            function, task = connection.recv()
            connection.send(_attempt(function, task))


def _attempt(function: Callable[[Any], Any], task: Any) -> Any:
    try:
        return function(task)
    except Exception as error:
        return Failure(_portable(error), traceback.format_exc())


def _portable(error: Exception) -> Exception:
    """The error itself where it survives being sent, else its text."""
    try:
        pickle.loads(pickle.dumps(error))  # our own bytes, made one call earlier
    except Exception:
        return RuntimeError(repr(error))
    return error


def _end_with_parent() -> None:
    """A killed parent can't stop its workers, and a busy worker does not read its connection.

    The parent never writes to a worker's stdin and holds its other end, so its end of file is the parent's end.
    """
    while os.read(STDIN, 1):
        pass
    os._exit(1)
