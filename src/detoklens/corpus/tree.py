"""In what order are parts merged? In a tree of fixed shape, bottom up, as its leaves become ready.

Node (0, i) is shard i; node (level + 1, i) is the sum of up to FAN nodes (level, FAN·i …). A node's file stands for all
shards below it, so its children are removed, and disk use stays near that of the largest parts. At the top at most FAN
nodes are left for the last merge.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FAN = 16


@dataclass(frozen=True)
class Node:
    """A place in the tree."""

    level: int
    index: int

    @property
    def parent(self) -> Node:
        return Node(self.level + 1, self.index // FAN)


class MergeTree:
    """Which nodes are done, and which merges they make possible."""

    def __init__(self, shards: int, folder: Path) -> None:
        self._folder = folder
        self._widths = _widths(shards)
        self._done: set[Node] = {node for node in self._nodes() if self.path(node).exists()}
        self._drop_merged()

    def path(self, node: Node) -> Path:
        return self._folder / f"{node.level}-{node.index:08d}.arrow"

    def open_shards(self) -> list[int]:
        """Shards that neither are counted nor stand in a node above."""
        return [index for index in range(self._widths[0]) if not self._is_covered(Node(0, index))]

    def ready_merges(self) -> list[Node]:
        """Nodes whose children are all done, lowest first."""
        inner = (node for node in self._nodes() if node.level > 0 and not self._is_covered(node))
        return [node for node in inner if self._done.issuperset(self.children(node))]

    def mark_done(self, node: Node) -> Node | None:
        """Take note that a node's file is there; the parent, where it can be merged now."""
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
        """A run that was killed between merging and removing leaves children beside their parent."""
        for node in [node for node in self._done if node.level > 0]:
            self._remove(self.children(node))

    def _remove(self, nodes: list[Node]) -> None:
        for node in nodes:
            self.path(node).unlink(missing_ok=True)
            self._done.discard(node)


def _widths(shards: int) -> list[int]:
    """The number of nodes of each level, up to the first that one merge can take."""
    widths = [shards]
    while widths[-1] > FAN:
        widths.append(-(-widths[-1] // FAN))
    return widths
