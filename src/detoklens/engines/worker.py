"""A worker process: receive a task, run it, send the result; exit with the parent process."""

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
    """An exception that is sent back to the parent process."""

    error: Exception
    trace: str


def main(descriptor: int) -> None:
    """Serve the parent process over an inherited connection."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles Ctrl-C
    threading.Thread(target=_end_with_parent, daemon=True).start()
    work(Connection(descriptor))


def work(connection: Connection) -> None:
    """Run tasks until the parent closes the connection or dies."""
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
    """The error if it can be pickled, else its text."""
    try:
        pickle.loads(pickle.dumps(error))  # our own bytes, made one call earlier
    except Exception:
        return RuntimeError(repr(error))
    return error


def _end_with_parent() -> None:
    """Exit when the parent dies: it can't stop its workers if it is killed, and a busy worker reads no connection.

    The parent holds the other end of a worker's stdin and never writes to it, so end of file means that it is gone.
    """
    while os.read(STDIN, 1):
        pass
    os._exit(1)
