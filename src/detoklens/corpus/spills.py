"""Runs that memory can't hold lie in files beside the part they are for, and come back as one sorted stream."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from detoklens.corpus.pairs import Run
from detoklens.corpus.parts import RunFile, merged_blocks, write_runs
from detoklens.corpus.tree import FAN

TEMPORARY = ".part-"
"""In the name of every spilled file, so that a later run finds what a killed one left."""


class Spills:
    """The files of one shard; left, they are removed.

    FAN files of a level become one of the next, so that memory and open files stay few however large the shard is.
    """

    def __init__(self, target: Path, keys: np.dtype[Any]) -> None:
        self._target = target
        self._keys = keys
        self._levels: list[list[Path]] = [[]]

    def put_away(self, run: Run) -> None:
        """Write a run that is too large to be kept."""
        self._add(0, [run])

    def merged_with(self, last: Run) -> Iterable[Run]:
        """All that was put away and the run that was left at the end, in rising order of keys."""
        if not any(self._levels):
            return [last]
        self.put_away(last)
        while sum(map(len, self._levels)) > FAN:
            lowest = next(level for level, files in enumerate(self._levels) if files)
            self._raise(lowest)
        return _merged([path for files in self._levels for path in files])

    def _add(self, level: int, runs: Iterable[Run]) -> None:
        if level == len(self._levels):
            self._levels.append([])
        path = self._target.with_name(f"{self._target.name}{TEMPORARY}{uuid.uuid4().hex}")
        self._levels[level].append(path)  # to be removed even if it is half written
        write_runs(path, runs, self._keys)
        if len(self._levels[level]) >= FAN:
            self._raise(level)

    def _raise(self, level: int) -> None:
        """Merge the files of a level to one of the next."""
        sources = self._levels[level]
        self._levels[level] = []
        try:
            self._add(level + 1, _merged(sources))
        finally:
            _remove(sources)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for files in self._levels:
            _remove(files)


def _merged(paths: list[Path]) -> Iterable[Run]:
    return merged_blocks([RunFile(path) for path in paths])


def _remove(paths: list[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
