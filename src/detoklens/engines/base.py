"""What must an engine be able to do? One method, and being closed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Protocol, Self, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")

ATTEMPTS = 3
"""How often a task is started before the loss of its worker counts as the task's own fault."""


class Engine(Protocol):
    """Runs pure functions on many tasks.

    `run` pulls tasks as workers become free, never many ahead, so `tasks` may be a generator that decides what comes
    next from the results so far. Results come as they are completed, or in the order of the tasks with `ordered`.
    A task whose worker is lost is started again; an exception of the function ends the run with that exception.
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
    """An engine as a context manager: left, it is closed."""

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
    """Results in the order of their tasks: those that come early wait for the ones before them."""
    waiting: dict[int, Result] = {}
    following = 0
    for number, result in numbered:
        waiting[number] = result
        while following in waiting:
            yield waiting.pop(following)
            following += 1


def unnumbered(numbered: Iterable[tuple[int, Result]], ordered: bool) -> Iterator[Result]:
    """The results alone, as they came or in the order of their tasks."""
    return in_order(numbered) if ordered else (result for _, result in numbered)
