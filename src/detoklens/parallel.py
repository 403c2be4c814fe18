"""Run blocks of work on threads: results in order, finished blocks kept for the next run.

Compiled loops, numpy, BLAS and torch release the GIL, so threads use all cores and share arrays without copies. Blocks
never depend on the number of workers and their matrix products run on one core, so the numbers are the same for any
number of workers.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from threadpoolctl import threadpool_limits

from detoklens.progress import Watcher, unwatched

if TYPE_CHECKING:
    from detoklens.tables.files import Parts

LOG = logging.getLogger("detoklens")
Arrays = dict[str, np.ndarray]
Item = TypeVar("Item")
Result = TypeVar("Result")

WORKER_VARIABLE = "DETOKLENS_WORKER"
"""The number of a worker process, from 1; unset in the main process."""

CONTROL_GROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")

AHEAD = 2
"""Items per worker that may be submitted ahead of the awaited result."""


def available_cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine_memory() -> int:
    """Bytes of memory of this machine or container."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if CONTROL_GROUP_LIMIT.is_file():
        limit = CONTROL_GROUP_LIMIT.read_text().strip()
        if limit.isdecimal():
            memory = min(memory, int(limit))
    return memory


def thread_map(function: Callable[[Item], Result], items: Iterable[Item], workers: int = 1) -> Iterator[Result]:
    """`map` on threads, results in order; with one worker everything runs in the caller's thread.

    Items are taken as workers become free. After an error, Ctrl-C, or when the caller stops iterating, no further item
    is started and running items are waited for.
    """
    with one_core_each():
        if workers == 1:
            yield from map(function, items)
            return
        running: deque[Future[Result]] = deque()
        pool = ThreadPoolExecutor(workers, thread_name_prefix="detoklens")
        try:
            for item in items:
                running.append(pool.submit(function, item))
                if len(running) >= AHEAD * workers:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


@contextmanager
def one_core_each() -> Iterator[None]:
    """Limit matrix products to one core, so that workers are the only parallelism and sums keep their order.

    The limit applies to the whole process, so it is set around all threads, never inside one.
    """
    with threadpool_limits(1, user_api="blas"):
        yield


@dataclass(frozen=True)
class Runner:
    """Runs the blocks of a question on threads; keeps finished blocks in `parts` and reports progress and notes."""

    workers: int = 1
    parts: Parts | None = None
    watch: Watcher = unwatched
    say: Callable[[str], None] = lambda _note: None

    def run(self, compute: Callable[[int], Arrays], blocks: int) -> Iterator[Arrays]:
        """compute(0), compute(1), …; finished blocks are kept at once and read back in the next run."""
        finished = 0 if self.parts is None else sum(number in self.parts for number in range(blocks))
        if finished:
            LOG.warning("detoklens: continuing an interrupted run: %d of %d blocks are finished", finished, blocks)

        def kept_or_computed(number: int) -> Arrays:
            found = None if self.parts is None else self.parts.load(number)
            if found is None:
                found = compute(number)
                if self.parts is not None:
                    self.parts.save(number, found)
            return found

        return self.map(kept_or_computed, range(blocks))

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """`thread_map`, with progress."""
        self.watch(0, len(items))
        for done, result in enumerate(thread_map(function, items, self.workers), 1):
            yield result
            self.watch(done, len(items))

    def under(self, name: str) -> Runner:
        """A runner for another kind of blocks of the same question, with a separate folder of parts."""
        return replace(self, parts=None if self.parts is None else self.parts.under(name))
