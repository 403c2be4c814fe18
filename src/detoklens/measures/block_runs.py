"""Blocks of work on an engine: results in the order of the blocks, finished ones kept and not done again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from threadpoolctl import threadpool_limits

from detoklens.engines import Engine
from detoklens.progress import Watcher
from detoklens.tables.parts import Parts

Task = TypeVar("Task")
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Runner:
    """Where blocks are computed, where their results are kept, who is told how far it is, and who hears notes.

    Without an engine blocks are computed in this process, without parts nothing is kept.
    """

    engine: Engine | None = None
    parts: Parts | None = None
    watch: Watcher | None = None
    say: Callable[[str], None] = lambda _note: None

    def run(self, function: Callable[[Task], Arrays], task: Callable[[int], Task], blocks: int) -> Iterator[Arrays]:
        """function(task(0)), function(task(1)), …: the same arrays wherever they are computed."""
        kept = [self.parts is not None and number in self.parts for number in range(blocks)]
        computed = self._compute(function, (task(number) for number in range(blocks) if not kept[number]))
        self._tell(0, blocks)
        for number in range(blocks):
            stored = self._load(number) if kept[number] else next(computed)
            result = function(task(number)) if stored is None else stored
            if self.parts is not None and (stored is None or not kept[number]):
                self.parts.save(number, result)
            yield result
            self._tell(number + 1, blocks)

    def under(self, name: str) -> Runner:
        """The same for another kind of blocks of the same question: its parts lie in a folder of their own."""
        return replace(self, parts=None if self.parts is None else self.parts.under(name))

    def finish(self) -> None:
        """The answer is written: what was kept of it can go."""
        if self.parts is not None:
            self.parts.remove()

    def _tell(self, done: int, blocks: int) -> None:
        if self.watch is not None:
            self.watch(done, blocks)

    def _compute(self, function: Callable[[Task], Arrays], tasks: Iterator[Task]) -> Iterator[Arrays]:
        if self.engine is None:
            return (function(task) for task in tasks)
        return self.engine.run(function, tasks, ordered=True)

    def _load(self, number: int) -> Arrays | None:
        return None if self.parts is None else self.parts.load(number)


def one_thread() -> threadpool_limits:
    """Matrix products on one thread: workers are the parallelism, and sums keep their order."""
    return threadpool_limits(1, user_api="blas")
