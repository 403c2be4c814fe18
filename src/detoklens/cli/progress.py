"""Progress on stderr: bars and a live list of steps; plain lines if stderr is not a terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from detoklens.cli.output import say
from detoklens.report.folder import Listener

if TYPE_CHECKING:
    from detoklens.corpus.count import CountWatcher, Progress
    from detoklens.progress import Watcher
    from detoklens.report.folder import Step


@contextlib.contextmanager
def shown_progress() -> Iterator[CountWatcher]:
    """A watcher of counting: a bar in a terminal, otherwise only notes."""
    if not sys.stderr.isatty():
        yield _say_notes
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        line = bar.add_task("listing the input", total=None)

        def watch(progress: Progress) -> None:
            _say_notes(progress)
            done = progress.finished_before + progress.finished
            elapsed = bar.tasks[0].elapsed or 0.0
            bar.update(line, description=describe(progress, elapsed), completed=done, total=progress.total_size)

        yield watch


def describe(progress: Progress, elapsed: float) -> str:
    """One line: what was read, how fast, and the time left."""
    tally = progress.tally
    speed = tally.text_bytes / 1e6 / elapsed if elapsed else 0.0
    return (
        f"{progress.stage}: {tally.documents:,} documents, {tally.text_bytes / 1e6:,.0f} MB, {speed:.1f} MB/s, "
        f"{tally.tokens:,} tokens, {_time_left(progress, elapsed)}"
    )


def _time_left(progress: Progress, elapsed: float) -> str:
    left = progress.total_size - progress.finished_before - progress.finished
    if progress.finished == 0 or left <= 0:
        return "almost done" if left <= 0 else "time left unknown"
    seconds = round(elapsed * left / progress.finished)
    return f"{seconds // 3600}:{seconds % 3600 // 60:02}:{seconds % 60:02} left"


def _say_notes(progress: Progress) -> None:
    while progress.notes:
        say(progress.notes.pop(0))


NEEDS = {
    "counts": "needs --counts or --corpus",
    "text": "needs --text",
    "vocabulary": "needs a tokenizer",
    "position_table": "the model has no position embeddings",
    "causal": "the model is bidirectional",
}


@contextlib.contextmanager
def step_list() -> Iterator[Listener]:
    """A listener that shows the steps of a report."""
    if not sys.stderr.isatty():
        yield Listener(end=lambda step: typer.echo(_outcome(step), err=True))
        return
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
        return f"   –    {step.title}: {NEEDS.get(step.missing, step.missing)}"
    return f"  kept  {step.title}" if step.kept else f"{step.seconds:5.1f} s {step.title}"
