"""Run pure functions in local processes or on a Ray cluster: counting, drawing figures, many checkpoints.

Measures of one model run on threads instead (`detoklens.parallel`). To add an engine (Dask, Spark), write a subclass of
`Engine` and add it to `open_engine`.

One local worker means this process itself. More are fresh interpreters that import detoklens and never the program that
uses it, so a script needs no `if __name__ == "__main__":`, and notebooks and here-documents work too. Each worker has
its own connection: one that dies takes only its own task with it, which is given to another. Workers end when the
process that started them does, however it ends.
"""

from __future__ import annotations

import importlib
import os
import pickle
import signal
import subprocess
import sys
import threading
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from multiprocessing.connection import Connection, Pipe, wait
from types import FrameType
from typing import Any, Self, TypeVar

from detoklens.errors import DetokLensError, MissingExtraError, first_line
from detoklens.parallel import WORKER_VARIABLE, available_cores

Task = TypeVar("Task")
Result = TypeVar("Result")

ENGINES = ("local", "ray")
ATTEMPTS = 3
"""Starts of a task before the loss of its worker is blamed on the task."""

PROGRAM = "import sys; sys.path[:] = {path!r}; from detoklens.engines import serve; serve({descriptor})"
STDIN = 0


def open_engine(name: str = "local", workers: int | None = None, ray_address: str | None = None) -> Engine:
    """Start the named engine; None means as many workers as the machine or the cluster has cores."""
    if name not in ENGINES:
        raise DetokLensError(f"unknown engine {name!r}; accepted are {', '.join(ENGINES)}")
    if workers is not None and workers < 1:
        raise DetokLensError(f"{workers} workers were requested; pass at least 1")
    if name == "ray":
        return RayEngine(workers, ray_address)
    if ray_address is not None:
        raise DetokLensError(
            "a Ray address was given with the local engine; choose the ray engine, or omit the address"
        )
    return LocalEngine(workers or available_cores())


class Engine(ABC):
    """Runs pure functions on many tasks."""

    workers: int

    @abstractmethod
    def run(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        """Yield the result of a pure, picklable function for each task, as they complete.

        Tasks are pulled as workers become free, so `tasks` may be a generator that chooses the next task from the
        results so far. A task whose worker is lost is restarted; an exception in the function ends the run.
        """

    @abstractmethod
    def close(self) -> None:
        """Stop all workers."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass
class Assignment:
    """A task and how often it was started."""

    task: Any
    attempts: int = 0


class Worker:
    """One process and the connection to it."""

    def __init__(self, number: int = 1) -> None:
        self.connection: Connection
        self.connection, far_end = Pipe()
        program = PROGRAM.format(path=sys.path, descriptor=far_end.fileno())
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # workers ignore Ctrl-C from the beginning
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-c", program],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=[far_end.fileno()],
                env=os.environ | {WORKER_VARIABLE: str(number)},
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        far_end.close()

    def stop(self) -> None:
        self.connection.close()
        self.process.kill()
        self.process.communicate()


class LocalEngine(Engine):
    """Runs tasks in `workers` processes, or in this process if that is 1."""

    def __init__(self, workers: int = 1) -> None:
        self.workers = workers
        self._idle: list[Worker] = []
        self._busy: dict[Any, tuple[Worker, Assignment]] = {}  # by their connections

    def close(self) -> None:
        self._end_busy()
        while self._idle:
            self._idle.pop().stop()

    def run(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        if self.workers == 1:
            yield from map(function, tasks)
            return
        queue, again = map(Assignment, tasks), list[Assignment]()
        try:
            while True:
                while len(self._busy) < self.workers and (assignment := again.pop() if again else next(queue, None)):
                    connection = self._take_worker(assignment)
                    try:
                        connection.send((function, assignment.task))
                    except ConnectionError:
                        again.append(self._discard(connection))
                if not self._busy:
                    return
                ready: list[Any] = wait(list(self._busy))
                for connection in ready:
                    try:
                        answer = connection.recv()
                    except (EOFError, ConnectionError):
                        again.append(self._discard(connection))
                        continue
                    self._idle.append(self._busy.pop(connection)[0])
                    if isinstance(answer, Failure):
                        raise answer.error from RuntimeError(f"in a worker process:\n{answer.trace}")
                    yield answer
        finally:  # after an error, or when the caller stops iterating
            self._end_busy()

    def _take_worker(self, assignment: Assignment) -> Any:
        """Assign a task to an idle or a new worker; return the connection to it."""
        assignment.attempts += 1
        with interrupts_deferred():  # nothing would stop a half-started worker
            worker = self._idle.pop() if self._idle else Worker(len(self._busy) + 1)
            self._busy[worker.connection] = worker, assignment
        return worker.connection

    def _discard(self, connection: Any) -> Assignment:
        """Remove a dead worker and return its task, to be restarted."""
        worker, assignment = self._busy.pop(connection)
        worker.stop()
        if assignment.attempts >= ATTEMPTS:
            raise DetokLensError(
                f"a worker process died {ATTEMPTS} times on the same task, probably for lack of memory; allow "
                "less memory or fewer workers and run it again"
            )
        return assignment

    def _end_busy(self) -> None:
        while self._busy:
            self._busy.popitem()[1][0].stop()


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

    The parent holds the other end of a worker's stdin and never writes to it, so end of file means that it has ended.
    """
    while os.read(STDIN, 1):
        pass
    os._exit(1)


class RayEngine(Engine):
    """Runs tasks on Ray, which restarts the tasks of lost workers."""

    def __init__(self, workers: int | None = None, address: str | None = None) -> None:
        try:
            self._ray: Any = importlib.import_module("ray")
        except ImportError as error:
            raise MissingExtraError(
                "the ray engine needs Ray, which is not installed: pip install 'detoklens[ray]' (in a clone: '.[ray]')"
            ) from error
        self._started_here = not self._ray.is_initialized()
        if self._started_here:
            new = {"address": "local", "num_cpus": workers, "include_dashboard": False}
            quiet = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": True}
            try:
                self._ray.init(**({"address": address} if address else new), **quiet)
            except (ConnectionError, RuntimeError, ValueError) as error:
                reason = first_line(error)
                raise DetokLensError(f"no Ray cluster answers at {address or 'this machine'}: {reason}") from error
        self.workers = workers or max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def close(self) -> None:
        if self._started_here:
            self._ray.shutdown()

    def run(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        # Ray itself takes plain functions only, no partial ones.
        remote = self._ray.remote(lambda task: function(task)).options(max_retries=ATTEMPTS - 1, num_cpus=1)
        queue, running = iter(tasks), list[Any]()
        try:
            while True:
                running += map(remote.remote, islice(queue, self.workers - len(running)))
                if not running:
                    return
                finished, running = self._ray.wait(running, num_returns=1)
                yield from map(self._get, finished)
        finally:
            for reference in running:
                self._ray.cancel(reference, force=True)

    def _get(self, reference: Any) -> Any:
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, DetokLensError):
                raise error.cause from error
            if isinstance(error.cause, MemoryError):
                raise MemoryError(str(error.cause)) from error  # Ray's own text is a traceback
            raise
        except self._ray.exceptions.RayError as error:
            raise DetokLensError(
                f"Ray lost the same task {ATTEMPTS} times ({first_line(error)}); allow less memory or fewer "
                "workers and run it again"
            ) from error


@contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Handle Ctrl-C when the block ends.

    For short work in libraries where an exception would end the process: numba loads compiled loops through callbacks
    that can't raise.
    """
    before = signal.getsignal(signal.SIGINT)
    if not callable(before) or threading.current_thread() is not threading.main_thread():
        yield
        return
    met: list[FrameType | None] = []
    signal.signal(signal.SIGINT, lambda _, frame: met.append(frame))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if met:
            before(signal.SIGINT, met[0])
