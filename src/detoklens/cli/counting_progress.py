"""How far is the counting? Documents, MB, MB/s, tokens and the time left, on stderr where that is a terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from detoklens.cli.output import say

if TYPE_CHECKING:
    from detoklens.corpus.count import Progress, Watcher


@contextlib.contextmanager
def shown_progress() -> Iterator[Watcher]:
    """A watcher that draws a bar where stderr is a terminal, and one that only passes on notes where it is not."""
    if not sys.stderr.isatty():
        yield _say_notes
        return
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        line = bar.add_task("looking at the input", total=None)

        def watch(progress: Progress) -> None:
            _say_notes(progress)
            done = progress.finished_before + progress.finished
            elapsed = bar.tasks[0].elapsed or 0.0
            bar.update(line, description=describe(progress, elapsed), completed=done, total=progress.total_size)

        yield watch


def describe(progress: Progress, elapsed: float) -> str:
    """One line: what was read in this run, how fast, and when it will be done."""
    tally = progress.tally
    speed = tally.text_bytes / 1e6 / elapsed if elapsed else 0.0
    return (
        f"{progress.stage}: {tally.documents:,} documents, {tally.text_bytes / 1e6:,.0f} MB, {speed:.1f} MB/s, "
        f"{tally.tokens:,} tokens, {_time_left(progress, elapsed)}"
    )


def _time_left(progress: Progress, elapsed: float) -> str:
    left = progress.total_size - progress.finished_before - progress.finished
    if progress.finished == 0 or left <= 0:
        return "almost done" if left <= 0 else "time left unknown yet"
    seconds = round(elapsed * left / progress.finished)
    return f"{seconds // 3600}:{seconds % 3600 // 60:02}:{seconds % 60:02} left"


def _say_notes(progress: Progress) -> None:
    while progress.notes:
        say(progress.notes.pop(0))
