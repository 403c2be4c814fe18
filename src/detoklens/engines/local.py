"""Work in processes of this machine.

One worker means this process itself. More are fresh interpreters that import detoklens and never the program that uses
it, so a script needs no `if __name__ == "__main__":`, and notebooks and here-documents work too. Each worker has its
own connection: one that dies takes only its own task with it, which is given to another. Workers end when the process
that started them does, however it ends.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

from detoklens.engines import ATTEMPTS, Engine, interrupts_blocked, interrupts_deferred
from detoklens.errors import DetokLensError
from detoklens.parallel import WORKER_VARIABLE

PROGRAM = "import sys; sys.path[:] = {path!r}; from detoklens.engines.local import serve; serve({descriptor})"


@dataclass
class Assignment:
    """A task with its number and how often it was started."""

    number: int
    task: Any
    attempts: int = 0


class Worker:
    """One process and the connection to it."""

    def __init__(self, number: int = 1) -> None:
        self.connection: Connection
        self.connection, far_end = Pipe()
        program = PROGRAM.format(path=sys.path, descriptor=far_end.fileno())
        with interrupts_blocked():
            self.process = subprocess.Popen(
                [sys.executable, "-c", program],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=[far_end.fileno()],
                env=os.environ | {WORKER_VARIABLE: str(number)},
            )
        far_end.close()
        self.assignment: Assignment | None = None

    def give(self, function: Callable[[Any], Any], assignment: Assignment) -> None:
        assignment.attempts += 1
        self.assignment = assignment
        self.connection.send((function, assignment.task))

    def stop(self) -> None:
        self.connection.close()
        self.process.kill()
        self.process.communicate()


class LocalEngine(Engine):
    """Runs tasks in `workers` processes, or in this process if that is 1."""

    def __init__(self, workers: int = 1) -> None:
        self.workers = workers
        self._pool: list[Worker] = []

    def close(self) -> None:
        for worker in self._pool:
            worker.stop()
        self._pool.clear()

    def _results(self, function: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[tuple[int, Any]]:
        if self.workers == 1:
            yield from ((number, function(task)) for number, task in enumerate(tasks))
            return
        queue = (Assignment(number, task) for number, task in enumerate(tasks))
        again: list[Assignment] = []
        try:
            while self._fill(function, queue, again):
                busy = {worker.connection: worker for worker in self._pool if worker.assignment}
                for connection in wait(list(busy)):
                    assert isinstance(connection, Connection)
                    worker = busy[connection]
                    assignment = worker.assignment
                    assert assignment is not None
                    try:
                        answer = connection.recv()
                    except (EOFError, ConnectionError):
                        again.append(self._discard(worker, assignment))
                        continue
                    worker.assignment = None
                    if isinstance(answer, Failure):
                        raise answer.error from RuntimeError(f"in a worker process:\n{answer.trace}")
                    yield assignment.number, answer
        finally:  # after an error, or when the caller stops iterating
            for worker in [worker for worker in self._pool if worker.assignment]:
                self._pool.remove(worker)
                worker.stop()

    def _fill(self, function: Callable[[Any], Any], queue: Iterator[Assignment], again: list[Assignment]) -> bool:
        """Give every free worker a task; return whether any worker is busy."""
        while (worker := self._free()) is not None:
            assignment = again.pop() if again else next(queue, None)
            if assignment is None:
                break
            try:
                worker.give(function, assignment)
            except ConnectionError:
                again.append(self._discard(worker, assignment))
        return any(worker.assignment for worker in self._pool)

    def _free(self) -> Worker | None:
        for worker in self._pool:
            if worker.assignment is None:
                return worker
        if len(self._pool) < self.workers:
            with interrupts_deferred():  # nothing would stop a half-started worker
                self._pool.append(Worker(len(self._pool) + 1))
            return self._pool[-1]
        return None

    def _discard(self, worker: Worker, assignment: Assignment) -> Assignment:
        """Remove a dead worker from the pool and return its task, to be restarted."""
        self._pool.remove(worker)
        worker.stop()
        if assignment.attempts >= ATTEMPTS:
            raise DetokLensError(
                f"a worker process died {ATTEMPTS} times on the same task, most likely for lack of memory; allow "
                "less memory or fewer workers and run the same again"
            )
        return assignment


STDIN = 0


@dataclass(frozen=True)
class Failure:
    """An exception that is sent back to the parent process."""

    error: Exception
    trace: str


def serve(descriptor: int) -> None:
    """Serve the parent process over an inherited connection; this is a worker's main function."""
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
        trace = traceback.format_exc()
        try:
            pickle.loads(pickle.dumps(error))  # our own bytes, made one call earlier
        except Exception:
            return Failure(RuntimeError(repr(error)), trace)
        return Failure(error, trace)


def _end_with_parent() -> None:
    """Exit when the parent dies: it can't stop its workers if it is killed, and a busy worker reads no connection.

    The parent holds the other end of a worker's stdin and never writes to it, so end of file means that it is gone.
    """
    while os.read(STDIN, 1):
        pass
    os._exit(1)
