"""The interface of an engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Protocol, Self, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")

ATTEMPTS = 3
"""Starts of a task before the loss of its worker is blamed on the task."""


class Engine(Protocol):
    """Runs pure functions on many tasks.

    `run` pulls tasks as workers become free, so `tasks` may be a generator that chooses the next task from the results
    so far. Results are yielded as they complete, or in task order with `ordered`. A task whose worker is lost is
    restarted; an exception in the function ends the run.
    """

    workers: int

    def run(
        self, function: Callable[[Task], Result], tasks: Iterable[Task], *, ordered: bool = False
    ) -> Iterator[Result]: ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class Closing:
    """A context manager that closes the engine on exit."""

    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def in_order(numbered: Iterable[tuple[int, Result]]) -> Iterator[Result]:
    """Results in task order; early ones wait for those before them."""
    waiting: dict[int, Result] = {}
    following = 0
    for number, result in numbered:
        waiting[number] = result
        while following in waiting:
            yield waiting.pop(following)
            following += 1


def unnumbered(numbered: Iterable[tuple[int, Result]], ordered: bool) -> Iterator[Result]:
    """Results without their numbers, as completed or in task order."""
    return in_order(numbered) if ordered else (result for _, result in numbered)
