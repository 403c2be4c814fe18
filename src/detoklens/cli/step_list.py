"""A live list of a report's steps with their times on stderr; plain lines where stderr is no terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from detoklens.progress import Watcher
    from detoklens.report.steps import Listener, Step

NEEDS = {
    "counts": "--counts or --corpus",
    "text": "--text",
    "vocabulary": "a tokenizer",
}


@contextlib.contextmanager
def step_list() -> Iterator[Listener]:
    """Who to tell about steps."""
    from detoklens.report.steps import Listener

    if not sys.stderr.isatty():
        yield Listener(end=lambda step: _write_line(_outcome(step)))
        return
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Bar(*columns, console=console, transient=True) as bar:

        def begin(title: str) -> Watcher:
            for task in bar.task_ids:
                bar.remove_task(task)
            line = bar.add_task(title, total=None)
            return lambda done, total: bar.update(line, completed=done, total=total)

        def end(step: Step) -> None:
            for task in bar.task_ids:
                bar.remove_task(task)
            console.print(_outcome(step), markup=False, highlight=False)

        yield Listener(begin, end)


def _outcome(step: Step) -> str:
    if step.missing:
        return f"   –    {step.title}: left out, needs {' and '.join(NEEDS.get(need, need) for need in step.missing)}"
    return f"  kept  {step.title}" if step.kept else f"{step.seconds:5.1f} s {step.title}"


def _write_line(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
