"""The small safetensors file on disk: begun, continued after an interruption, finished by a rename."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from detoklens.hub.ranges import stream_ranges
from detoklens.weights.hub.selection import Selection


def assemble(selection: Selection, target: Path, title: str, show_progress: bool) -> None:
    """Bring the selected bytes into `target`.

    They are appended to `<target>.<key>.partial`, whose length says how far it has come. As the key depends
    on the remote files' etags and on the selection, what is continued is always the same file.
    """
    partial = target.with_name(f"{target.name}.{selection.key}.partial")
    done = _usable_length(partial, selection)
    with (
        partial.open("r+b" if done else "wb") as file,
        _bar(title, selection.size, done, show_progress) as advance,
    ):
        file.truncate(done)
        file.seek(done)
        if not done:
            file.write(selection.header)
            done = len(selection.header)
        for remote, ranges in selection.beyond(done):
            for piece in stream_ranges(remote, ranges):
                file.write(piece)
                advance(len(piece))
        file.flush()
        os.fsync(file.fileno())
    partial.replace(target)
    for stale in target.parent.glob(f"{target.name}.*.partial"):
        stale.unlink()


def write_atomically(path: Path, content: bytes) -> None:
    """Either the whole content stands at `path`, or what stood there before."""
    temporary = path.with_name(f"{path.name}.writing")
    temporary.write_bytes(content)
    temporary.replace(path)


def _usable_length(partial: Path, selection: Selection) -> int:
    """How many bytes of an earlier attempt can be kept? None, unless they begin with the same header."""
    if not partial.is_file():
        return 0
    with partial.open("rb") as file:
        same = file.read(len(selection.header)) == selection.header
    length = partial.stat().st_size
    return length if same and length <= selection.size else 0


@contextmanager
def _bar(title: str, total: int, done: int, wanted: bool) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr with bytes, speed and time left; none if stderr is not a terminal."""
    if not (wanted and sys.stderr.isatty()):
        yield lambda _: None
        return
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=total, completed=done)
        yield lambda count: bar.advance(task, count)
