"""Progress on stderr: a bar of counting and the list of a report's steps; plain lines if stderr is not a terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

import typer
from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from detoklens.cli.output import say
from detoklens.corpus.count import CountWatcher, Progress
from detoklens.errors import INPUTS
from detoklens.progress import Listener, Step, Watcher

COLUMNS = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())


@contextlib.contextmanager
def shown_progress() -> Iterator[CountWatcher]:
    """A watcher of counting: a bar in a terminal, otherwise only notes."""

    def say_notes(progress: Progress) -> None:
        while progress.notes:
            say(progress.notes.pop(0))

    if not sys.stderr.isatty():
        yield say_notes
        return
    with Bar(*COLUMNS, console=Console(stderr=True), transient=True) as bar:
        line = bar.add_task("listing the input", total=None)

        def watch(progress: Progress) -> None:
            say_notes(progress)
            done = progress.finished_before + progress.finished
            description = describe(progress, bar.tasks[0].elapsed or 0.0)
            bar.update(line, description=description, completed=done, total=progress.total_size)

        yield watch


def describe(progress: Progress, elapsed: float) -> str:
    """One line: what was read, how fast, and the time left."""
    tally = progress.tally
    speed = tally.text_bytes / 1e6 / elapsed if elapsed else 0.0
    left = progress.total_size - progress.finished_before - progress.finished
    if left <= 0:
        remaining = "almost done"
    elif progress.finished == 0:
        remaining = "time left unknown"
    else:
        seconds = round(elapsed * left / progress.finished)
        remaining = f"{seconds // 3600}:{seconds % 3600 // 60:02}:{seconds % 60:02} left"
    return (
        f"{progress.stage}: {tally.documents:,} documents, {tally.text_bytes / 1e6:,.0f} MB, {speed:.1f} MB/s, "
        f"{tally.tokens:,} tokens, {remaining}"
    )


@contextlib.contextmanager
def step_list() -> Iterator[Listener]:
    """A listener that shows the steps of a report."""
    if not sys.stderr.isatty():
        yield Listener(end=lambda step: typer.echo(_outcome(step), err=True))
        return
    console = Console(stderr=True)
    with Bar(*COLUMNS, console=console, transient=True) as bar:

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
        return f"   –    {step.title}: {INPUTS[step.missing].report if step.missing in INPUTS else step.missing}"
    return f"  kept  {step.title}" if step.kept else f"{step.seconds:5.1f} s {step.title}"
