"""The work runs in threads of this process: for functions that share something heavy and compute outside Python's lock.

A real model is such a thing: a process of its own would load it again, and torch lets go of the lock while it computes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from detoklens.engines.base import Closing, Result, Task


class ThreadEngine(Closing):
    """Runs tasks in `workers` threads; results come in the order of the tasks."""

    def __init__(self, workers: int = 1) -> None:
        self.workers = workers

    def run(
        self,
        function: Callable[[Task], Result],
        tasks: Iterable[Task],
        *,
        ordered: bool = True,  # noqa: ARG002 - they always are
    ) -> Iterator[Result]:
        if self.workers == 1:
            yield from (function(task) for task in tasks)
            return
        waiting: deque[Future[Result]] = deque()
        with ThreadPoolExecutor(self.workers) as pool:
            try:
                for task in tasks:
                    waiting.append(pool.submit(function, task))
                    if len(waiting) > self.workers:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                for future in waiting:
                    future.cancel()
