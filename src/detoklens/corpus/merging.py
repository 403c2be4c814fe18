"""The tree of merges, and runs that are spilled to files and read back as one sorted stream."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from detoklens.corpus.pairs import Run
from detoklens.corpus.parts import RunFile, merged_blocks, write_runs

FAN = 16


@dataclass(frozen=True)
class Node:
    """A node of the merge tree."""

    level: int
    index: int

    @property
    def parent(self) -> Node:
        return Node(self.level + 1, self.index // FAN)


class MergeTree:
    """Which nodes are done, and which merges are possible now."""

    def __init__(self, shards: int, folder: Path) -> None:
        self._folder = folder
        self._widths = _widths(shards)
        self._done: set[Node] = {node for node in self._nodes() if self.path(node).exists()}
        self._drop_merged()

    def path(self, node: Node) -> Path:
        return self._folder / f"{node.level}-{node.index:08d}.arrow"

    def open_shards(self) -> list[int]:
        """Shards that are neither counted nor part of a finished node above."""
        return [index for index in range(self._widths[0]) if not self._is_covered(Node(0, index))]

    def ready_merges(self) -> list[Node]:
        """Nodes whose children are all done, lowest first."""
        inner = (node for node in self._nodes() if node.level > 0 and not self._is_covered(node))
        return [node for node in inner if self._done.issuperset(self.children(node))]

    def mark_done(self, node: Node) -> Node | None:
        """Record that a node's file exists; return its parent if that can be merged now."""
        self._done.add(node)
        if node.level > 0:
            self._remove(self.children(node))
        if node.level + 1 == len(self._widths):
            return None
        return node.parent if self._done.issuperset(self.children(node.parent)) else None

    def children(self, node: Node) -> list[Node]:
        width = self._widths[node.level - 1]
        return [Node(node.level - 1, i) for i in range(FAN * node.index, min(FAN * node.index + FAN, width))]

    def top(self) -> list[Path]:
        """The files of the last merge."""
        level = len(self._widths) - 1
        return [self.path(Node(level, index)) for index in range(self._widths[level])]

    def _nodes(self) -> Iterator[Node]:
        return (Node(level, index) for level, width in enumerate(self._widths) for index in range(width))

    def _is_covered(self, node: Node) -> bool:
        return node in self._done or (node.level + 1 < len(self._widths) and self._is_covered(node.parent))

    def _drop_merged(self) -> None:
        """Remove children whose parent exists: a run killed between merging and removing leaves them."""
        for node in [node for node in self._done if node.level > 0]:
            self._remove(self.children(node))

    def _remove(self, nodes: list[Node]) -> None:
        for node in nodes:
            self.path(node).unlink(missing_ok=True)
            self._done.discard(node)


def _widths(shards: int) -> list[int]:
    """The number of nodes per level, up to the first level that a single merge can take."""
    widths = [shards]
    while widths[-1] > FAN:
        widths.append(-(-widths[-1] // FAN))
    return widths


TEMPORARY = ".part-"
"""Part of every spilled file's name, so that a later run finds what a killed one left."""


class Spills:
    """The files of one shard; left, they are removed.

    FAN files of a level become one of the next, so that memory and open files stay few however large the shard is.
    """

    def __init__(self, target: Path, keys: np.dtype[Any]) -> None:
        self._target = target
        self._keys = keys
        self._levels: list[list[Path]] = [[]]

    def put_away(self, run: Run) -> None:
        """Write a run that memory can't hold."""
        self._add(0, [run])

    def merged_with(self, last: Run) -> Iterable[Run]:
        """The spilled runs and the last run, merged in key order."""
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
        self._levels[level].append(path)  # so that it is removed even if it is half written
        write_runs(path, runs, self._keys)
        if len(self._levels[level]) >= FAN:
            self._raise(level)

    def _raise(self, level: int) -> None:
        """Merge the files of a level into one of the next."""
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
