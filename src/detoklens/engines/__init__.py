"""Run pure functions in local processes or on a Ray cluster: counting, drawing figures, many checkpoints.

Measures of one model run on threads instead (`detoklens.parallel`). To add an engine (Dask, Spark), write a subclass of
`Engine` and add it to `open_engine`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self, TypeVar

from detoklens.errors import DetokLensError
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


def open_engine(name: str = "local", workers: int | None = None, ray_address: str | None = None) -> Engine:
    """Start the named engine; None means as many workers as the machine or the cluster has cores."""
    if name not in ENGINES:
        raise DetokLensError(f"unknown engine {name!r}; accepted are {', '.join(ENGINES)}")
    if workers is not None and workers < 1:
        raise DetokLensError(f"{workers} workers were requested; pass at least 1")
    if name == "ray":
        from detoklens.engines.ray import RayEngine

        return RayEngine(workers, ray_address)
    if ray_address is not None:
        raise DetokLensError(
            "a Ray address was given with the local engine; choose the ray engine, or omit the address"
        )
    from detoklens.engines.local import LocalEngine

    return LocalEngine(workers or available_cores())
