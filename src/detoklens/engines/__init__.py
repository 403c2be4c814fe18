"""Run pure functions in local processes or on a Ray cluster: counting, drawing figures, many checkpoints.

Measures of one model run on threads instead (`detoklens.parallel`). To add an engine (Dask, Spark), write a subclass of
`Engine` and add it to `open_engine`.
"""

from __future__ import annotations

import contextlib
import importlib
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any, Self, TypeVar

from detoklens.errors import DetokLensError, MissingExtraError, first_line
from detoklens.parallel import available_cores

Task = TypeVar("Task")
Result = TypeVar("Result")

ENGINES = ("local", "ray")
ATTEMPTS = 3
"""Starts of a task before the loss of its worker is blamed on the task."""


class Engine(ABC):
    """Runs pure functions on many tasks."""

    workers: int

    def run(
        self, function: Callable[[Task], Result], tasks: Iterable[Task], *, ordered: bool = False
    ) -> Iterator[Result]:
        """Yield the result of a pure, picklable function for each task, as they complete or in task order.

        Tasks are pulled as workers become free, so `tasks` may be a generator that chooses the next task from the
        results so far. A task whose worker is lost is restarted; an exception in the function ends the run.
        """
        waiting: dict[int, Result] = {}
        following = 0
        for number, result in self._results(function, tasks):
            waiting[number if ordered else following] = result
            while following in waiting:
                yield waiting.pop(following)
                following += 1

    @abstractmethod
    def _results(self, function: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[tuple[int, Any]]:
        """Yield each task's number and result as they complete."""

    @abstractmethod
    def close(self) -> None:
        """End what was started."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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

    def _results(self, function: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[tuple[int, Any]]:
        remote = self._ray.remote(function).options(max_retries=ATTEMPTS - 1, num_cpus=1)
        queue = enumerate(tasks)
        running: dict[Any, int] = {}
        try:
            while True:
                while len(running) < self.workers and (following := next(queue, None)) is not None:
                    number, task = following
                    running[remote.remote(task)] = number
                if not running:
                    return
                for reference in self._ray.wait(list(running), num_returns=1)[0]:
                    yield running.pop(reference), self._get(reference)
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
                "workers and run the same again"
            ) from error


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
    from detoklens.engines.local import LocalEngine

    return LocalEngine(workers or available_cores())


@contextlib.contextmanager
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


@contextlib.contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Start processes that ignore Ctrl-C from the beginning."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
