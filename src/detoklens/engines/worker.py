"""What does a worker process do? It waits for a task, does it, answers, and ends with the process that started it."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any


@dataclass(frozen=True)
class Failure:
    """An exception on its way to the process that gave the task."""

    error: Exception
    trace: str


@dataclass(frozen=True)
class Begun:
    """A worker's first words: it could be started."""


def work(connection: Connection) -> None:
    """Answer tasks until the other end of the pipe is closed, as by the death of the process that holds it."""
    with suppress(EOFError, ConnectionError):
        connection.send(Begun())
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that waits
        threading.Thread(target=_end_with_parent, daemon=True).start()
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
    """A killed parent can't stop its workers, and a busy worker does not look at its pipe."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
