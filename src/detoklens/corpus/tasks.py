"""What engines run (count a shard into a part, merge parts into one), and the tree of merges.

Each task writes exactly one file atomically, and the same file every time it runs, so the task of a lost worker is
simply started again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from detoklens.corpus.documents import Shard
from detoklens.corpus.encoding import open_encoder
from detoklens.corpus.pairs import FAN, PairCounter, Spills, add_parts, key_type, write_part
from detoklens.corpus.reading import ReadingOptions, Tally, longest_document, read_texts
from detoklens.corpus.token_files import PairBatch, read_batches
from detoklens.errors import TokenError


@dataclass(frozen=True)
class Node:
    level: int
    index: int

    @property
    def parent(self) -> Node:
        return Node(self.level + 1, self.index // FAN)


@dataclass(frozen=True)
class ShardTask(ABC):
    """Count one shard into the part `target`."""

    shard: Shard[Any]
    target: Path
    vocabulary_size: int
    memory: int

    @property
    def node(self) -> Node:
        return Node(0, self.shard.index)

    @property
    def memory_of_pairs(self) -> int:
        """The memory left for the counter after the batches."""
        return self.memory // 2

    @abstractmethod
    def count(self, counter: PairCounter, tally: Tally) -> None:
        """Read the shard into the counter and the tally."""

    def run(self) -> Tally:
        keys, tally = key_type(self.vocabulary_size), Tally()
        with Spills(self.target, keys) as spills:
            counter = PairCounter(self.vocabulary_size, self.memory_of_pairs, spills.put_away)
            self.count(counter, tally)
            write_part(self.target, spills.merged_with(counter.finish()), keys, counter.tokens, tally)
        return tally


@dataclass(frozen=True)
class CountTask(ShardTask):
    """Read, tokenize and count texts."""

    tokenizer: Path
    library: str
    parse_special_tokens: bool
    reading: ReadingOptions
    batch: int

    @property
    def memory_of_pairs(self) -> int:
        return max(self.memory // 2, self.memory - 16 * self.batch)  # a batch of new words takes 16 times its size

    def count(self, counter: PairCounter, tally: Tally) -> None:
        encoder = open_encoder(self.library, self.tokenizer, self.parse_special_tokens)
        for texts in self._batches(tally):
            encoded = encoder.encode(texts)
            ids, offsets = encoded
            if len(offsets) != len(texts) + 1 or offsets[0] != 0 or offsets[-1] != len(ids):
                raise TokenError(
                    f"{self.library} returned ids for {len(offsets) - 1} documents instead of {len(texts)}; install "
                    "another version of it"
                )
            tally.tokens += len(ids)
            tally.documents_with_tokens += int(np.count_nonzero(np.diff(offsets)))
            counter.add(encoded)

    def _batches(self, tally: Tally) -> Iterator[list[bytes]]:
        """Texts of the shard in batches of about `batch` bytes."""
        texts: list[bytes] = []
        size = 0
        for piece in self.shard.pieces:
            for _, text in read_texts(piece, self.reading, tally, longest_document(self.memory)):
                texts.append(text)
                size += len(text)
                if size >= self.batch:
                    yield texts
                    texts, size = [], 0
        if texts:
            yield texts


@dataclass(frozen=True)
class ImportTask(ShardTask):
    """Count token ids, or add bigrams that were counted before."""

    def count(self, counter: PairCounter, tally: Tally) -> None:
        for piece in self.shard.pieces:
            for batch in read_batches(piece, self.vocabulary_size, longest_document(self.memory)):
                if isinstance(batch, PairBatch):
                    counter.add_counts(*batch)
                    tally.tokens += int(batch.counts.sum())
                    continue
                counter.add(batch.encoded)
                ids = batch.encoded.ids
                if batch.overlaps:
                    counter.tokens[ids[0]] -= 1
                tally.tokens += len(ids) - batch.overlaps
                tally.documents += batch.documents
                tally.documents_with_tokens += batch.documents_with_tokens


@dataclass(frozen=True)
class MergeTask:
    """Add up the parts below a node of the merge tree; they are kept."""

    node: Node
    sources: tuple[Path, ...]
    target: Path
    vocabulary_size: int

    def run(self) -> Tally:
        runs, tokens, tally = add_parts(self.sources)
        write_part(self.target, runs, key_type(self.vocabulary_size), tokens, tally)
        return tally


Task = ShardTask | MergeTask


def perform(task: Task) -> tuple[Task, Tally]:
    """Run a task; return it with the tally of its documents."""
    return task, task.run()


class MergeTree:
    """Which parts exist, and which can be made now: those of shards, and those of FAN neighbours of the level below."""

    def __init__(self, shards: int, folder: Path) -> None:
        self._folder = folder
        self._widths = [shards]  # nodes of each level, up to the first level that a single merge can take
        while self._widths[-1] > FAN:
            self._widths.append(-(-self._widths[-1] // FAN))
        inner = [Node(level, index) for level, width in enumerate(self._widths) if level for index in range(width)]
        for node in inner:
            if self.path(node).exists():
                self._remove_children(node)  # left by a run that was killed between merging and removing
        self.ready = [Node(0, index) for index in reversed(range(shards)) if not self._is_covered(Node(0, index))]
        self._missing = {node: sum(not path.exists() for path in self.children(node)) for node in inner}
        self.ready += [node for node in inner if not self._missing[node] and not self._is_covered(node)]

    def take(self) -> Iterator[Node]:
        """The nodes that can be made now: merges first, to keep the number of parts small, then shards in order."""
        while self.ready:
            yield self.ready.pop()

    def mark_done(self, node: Node) -> None:
        """Remove the parts below a new part; note whether it completes the parts below its parent."""
        if node.level > 0:
            self._remove_children(node)
        if node.parent in self._missing:
            self._missing[node.parent] -= 1  # not by the files that exist: a part may exist before it is reported
            if self._missing[node.parent] == 0:
                self.ready.append(node.parent)

    def path(self, node: Node) -> Path:
        return self._folder / f"{node.level}-{node.index:08d}.arrow"

    def children(self, node: Node) -> list[Path]:
        first, width = FAN * node.index, self._widths[node.level - 1]
        return [self.path(Node(node.level - 1, index)) for index in range(first, min(first + FAN, width))]

    def top(self) -> list[Path]:
        """The files of the last merge."""
        level = len(self._widths) - 1
        return [self.path(Node(level, index)) for index in range(self._widths[level])]

    def _is_covered(self, node: Node) -> bool:
        """Whether some part includes the counts of this node."""
        return self.path(node).exists() or (node.level + 1 < len(self._widths) and self._is_covered(node.parent))

    def _remove_children(self, node: Node) -> None:
        for path in self.children(node):
            path.unlink(missing_ok=True)
