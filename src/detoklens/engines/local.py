"""Work in processes of this machine.

One worker means this process itself. More are fresh interpreters that import detoklens and never the program that uses
it, so a script needs no `if __name__ == "__main__":`, and notebooks and here-documents work too. Each worker has its
own connection: one that dies takes only its own task with it, which is given to another. Workers end when the process
that started them does, however it ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

from detoklens.engines.base import ATTEMPTS, Closing, Result, Task, unnumbered
from detoklens.engines.interrupts import interrupts_blocked, interrupts_deferred
from detoklens.engines.worker import Failure
from detoklens.errors import DetokLensError
from detoklens.parallel import WORKER_VARIABLE

PROGRAM = "import sys; sys.path[:] = {path!r}; from detoklens.engines.worker import main; main({descriptor})"


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


class LocalEngine(Closing):
    """Runs tasks in `workers` processes, or in this process if that is 1."""

    def __init__(self, workers: int = 1) -> None:
        self.workers = workers
        self._pool: list[Worker] = []

    def run(
        self, function: Callable[[Task], Result], tasks: Iterable[Task], *, ordered: bool = False
    ) -> Iterator[Result]:
        if self.workers == 1:
            return (function(task) for task in tasks)
        return unnumbered(self._results(function, tasks), ordered)

    def close(self) -> None:
        for worker in self._pool:
            worker.stop()
        self._pool.clear()

    def _results(self, function: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[tuple[int, Any]]:
        queue = (Assignment(number, task) for number, task in enumerate(tasks))
        again: list[Assignment] = []
        try:
            while self._fill(function, queue, again):
                for worker in self._answering():
                    try:
                        answer = worker.connection.recv()
                    except (EOFError, ConnectionError):
                        again.append(self._replace(worker, _taken(worker)))
                        continue
                    yield _taken(worker).number, _unwrapped(answer)
        finally:
            self._stop_busy()

    def _fill(self, function: Callable[[Any], Any], queue: Iterator[Assignment], again: list[Assignment]) -> bool:
        """Give every free worker a task; return whether any worker is busy."""
        while (worker := self._free()) is not None:
            assignment = again.pop() if again else next(queue, None)
            if assignment is None:
                break
            self._send(worker, function, assignment, again)
        return any(worker.assignment for worker in self._pool)

    def _send(
        self,
        worker: Worker,
        function: Callable[[Any], Any],
        assignment: Assignment,
        again: list[Assignment],
    ) -> None:
        try:
            worker.give(function, assignment)
        except ConnectionError:
            again.append(self._replace(worker, assignment))

    def _free(self) -> Worker | None:
        for worker in self._pool:
            if worker.assignment is None:
                return worker
        if len(self._pool) < self.workers:
            with interrupts_deferred():  # nothing would stop a half-started worker
                self._pool.append(Worker(len(self._pool) + 1))
            return self._pool[-1]
        return None

    def _answering(self) -> list[Worker]:
        busy = {worker.connection: worker for worker in self._pool if worker.assignment}
        return [busy[connection] for connection in wait(list(busy)) if isinstance(connection, Connection)]

    def _replace(self, worker: Worker, assignment: Assignment) -> Assignment:
        """Remove a dead worker from the pool and return its task, to be restarted."""
        self._pool.remove(worker)
        worker.stop()
        if assignment.attempts >= ATTEMPTS:
            raise DetokLensError(
                f"a worker process died {ATTEMPTS} times on the same task, most likely for lack of memory; allow "
                "less memory or fewer workers and run the same again"
            )
        return assignment

    def _stop_busy(self) -> None:
        """Stop busy workers after an error, or when the caller stops iterating."""
        for worker in [worker for worker in self._pool if worker.assignment]:
            self._pool.remove(worker)
            worker.stop()


def _taken(worker: Worker) -> Assignment:
    assignment, worker.assignment = worker.assignment, None
    assert assignment is not None
    return assignment


def _unwrapped(answer: Any) -> Any:
    if isinstance(answer, Failure):
        raise answer.error from RuntimeError(f"in a worker process:\n{answer.trace}")
    return answer
