"""How far is a long analysis? A bar on stderr where that is a terminal and the work takes more than a moment."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from detoklens.analyses.watching import Watcher

PATIENCE = 1.0  # seconds without a bar


@contextlib.contextmanager
def shown_steps(title: str) -> Iterator[Watcher | None]:
    """A function to tell (steps done, steps in all), which draws a bar; None where nobody could see it."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        bar = Progress(*columns, console=Console(stderr=True), transient=True)
        line = bar.add_task(title)

        def watch(done: int, total: int) -> None:
            if not bar.live.is_started and time.monotonic() - started > PATIENCE:
                stack.enter_context(bar)
            bar.update(line, completed=done, total=total)

        yield watch
