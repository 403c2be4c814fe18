"""Progress: bars in a terminal or a notebook for work of more than a second, and the steps of a report."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

Watcher = Callable[[int, int], None]  # steps done, total steps
Watching = Callable[[str], contextlib.AbstractContextManager[Watcher | None]]  # takes a title

PATIENCE = 1.0  # seconds before a bar appears
OFTEN = 0.2  # seconds between two updates in a notebook
BAR = 30  # characters


def unwatched(_done: int, _total: int) -> None:
    """Show nothing."""


def shown_steps(title: str) -> contextlib.AbstractContextManager[Watcher]:
    """A watcher that draws a bar in a terminal or notebook."""
    if in_notebook():
        return _in_notebook(title)
    return _in_terminal(title) if sys.stderr.isatty() else contextlib.nullcontext(unwatched)


def in_notebook() -> bool:
    """Whether this runs in a Jupyter kernel; does not import IPython."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and hasattr(shell, "kernel")


@contextlib.contextmanager
def _in_terminal(title: str) -> Iterator[Watcher]:
    bar: Any = None
    started = time.monotonic()
    with contextlib.ExitStack() as stack:

        def watch(done: int, total: int) -> None:
            nonlocal bar
            if bar is None:
                if time.monotonic() - started < PATIENCE:
                    return
                from rich.console import Console  # a short command never needs it
                from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

                columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
                bar = stack.enter_context(Progress(*columns, console=Console(stderr=True), transient=True))
                bar.add_task(title)
            bar.update(bar.task_ids[0], completed=done, total=total)

        yield watch


@contextlib.contextmanager
def _in_notebook(title: str) -> Iterator[Watcher]:
    """One line of the cell's output, updated in place and cleared at the end."""
    from IPython.display import display

    line: Any = None
    updated = time.monotonic() + PATIENCE - OFTEN

    def watch(done: int, total: int) -> None:
        nonlocal line, updated
        if time.monotonic() - updated < OFTEN:
            return
        updated = time.monotonic()
        filled = BAR * done // max(1, total)
        text = f"{title} {'█' * filled}{'·' * (BAR - filled)} {done:,} of {total:,}"
        if line is None:
            line = display({"text/plain": text}, raw=True, display_id=True)
        else:
            line.update({"text/plain": text}, raw=True)

    yield watch
    if line is not None:
        line.update({"text/plain": ""}, raw=True)


@dataclass(frozen=True)
class Step:
    """A finished step: its duration, whether its result was reused (`kept`), or why it is `missing`."""

    title: str
    seconds: float = 0.0
    kept: bool = False
    missing: str = ""


@dataclass
class Listener:
    """Receives the progress of a report; `begin` may return a watcher for a progress bar."""

    begin: Callable[[str], Watcher | None] = lambda _title: None
    end: Callable[[Step], None] = lambda _step: None
    passed: list[Step] = field(default_factory=list)
    label: str = ""
    """Prefix that names one of several models."""

    def about(self, label: str) -> Listener:
        """The same listener, with a model's label before each step."""
        return replace(self, label=f"{label}: ")

    @contextlib.contextmanager
    def step(self, title: str) -> Iterator[Watcher]:
        """Time a step that is always run."""
        started = time.perf_counter()
        yield self.begin(self.label + title) or unwatched
        self.tell(Step(title, time.perf_counter() - started))

    def tell(self, step: Step) -> None:
        """Report a finished step."""
        labelled = replace(step, title=self.label + step.title)
        self.passed.append(labelled)
        self.end(labelled)
