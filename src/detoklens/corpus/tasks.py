"""The pure functions that engines run (count a shard into a part, merge parts into one), and the tree of merges.

Each writes exactly one file atomically, and the same file every time it runs, so the task of a lost worker is simply
started again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from detoklens.corpus.documents import Shard
from detoklens.corpus.encoding import open_encoder
from detoklens.corpus.memory import longest_document
from detoklens.corpus.pairs import FAN, PairCounter, Spills, add_parts, key_type, write_part
from detoklens.corpus.reading import Piece, read_texts
from detoklens.corpus.records import ReadingOptions, Tally
from detoklens.corpus.token_files import PairBatch, TokenPiece, read_batches
from detoklens.errors import TokenError


@dataclass(frozen=True)
class Node:
    """A node of the merge tree."""

    level: int
    index: int

    @property
    def parent(self) -> Node:
        return Node(self.level + 1, self.index // FAN)


@dataclass(frozen=True)
class CountTask:
    """Count one shard."""

    shard: Shard[Piece]
    target: Path
    tokenizer: Path
    library: str
    parse_special_tokens: bool
    vocabulary_size: int
    reading: ReadingOptions
    batch: int
    memory: int


@dataclass(frozen=True)
class ImportTask:
    """Count one shard of files that hold token ids or bigram counts already."""

    shard: Shard[TokenPiece]
    target: Path
    vocabulary_size: int
    memory: int


@dataclass(frozen=True)
class MergeTask:
    """Add up the parts below a node of the merge tree."""

    node: Node
    sources: tuple[Path, ...]
    target: Path
    vocabulary_size: int


Task = CountTask | ImportTask | MergeTask


@dataclass(frozen=True)
class Done:
    """A finished task: the part's file and the tally of its documents."""

    task: Task
    tally: Tally


def perform(task: Task) -> Done:
    """Run a task of any kind."""
    if isinstance(task, MergeTask):
        return merge_parts(task)
    return count_shard(task) if isinstance(task, CountTask) else import_shard(task)


def count_shard(task: CountTask) -> Done:
    """Read, tokenize and count a shard, and write its part to `task.target`."""
    encoder = open_encoder(task.library, task.tokenizer, task.parse_special_tokens)
    memory = max(task.memory // 2, task.memory - 16 * task.batch)  # a batch of new words takes 16 times its size
    with _counted_into_part(task, memory) as (counter, tally):
        for texts in _batches(task, tally):
            encoded = encoder.encode(texts)
            ids, offsets = encoded
            if len(offsets) != len(texts) + 1 or offsets[0] != 0 or offsets[-1] != len(ids):
                raise TokenError(
                    f"{task.library} gave ids of {len(offsets) - 1} documents for {len(texts)}; install another "
                    "version of it"
                )
            tally.tokens += len(ids)
            tally.documents_with_tokens += int(np.count_nonzero(np.diff(offsets)))
            counter.add(encoded)
    return Done(task, tally)


def _batches(task: CountTask, tally: Tally) -> Iterator[list[bytes]]:
    """Texts of the shard in batches of about `task.batch` bytes."""
    texts: list[bytes] = []
    size = 0
    for piece in task.shard.pieces:
        for _, text in read_texts(piece, task.reading, tally, longest_document(task.memory)):
            texts.append(text)
            size += len(text)
            if size >= task.batch:
                yield texts
                texts, size = [], 0
    if texts:
        yield texts


def import_shard(task: ImportTask) -> Done:
    """Read token ids or bigram counts, count them, and write the part to `task.target`."""
    with _counted_into_part(task, task.memory // 2) as (counter, tally):
        for piece in task.shard.pieces:
            for batch in read_batches(piece, task.vocabulary_size, longest_document(task.memory)):
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
    return Done(task, tally)


@contextmanager
def _counted_into_part(task: CountTask | ImportTask, memory: int) -> Iterator[tuple[PairCounter, Tally]]:
    """A counter and a tally to fill; at the end, both are written as the task's part."""
    keys, tally = key_type(task.vocabulary_size), Tally()
    with Spills(task.target, keys) as spills:
        counter = PairCounter(task.vocabulary_size, memory, spills.put_away)
        yield counter, tally
        write_part(task.target, spills.merged_with(counter.finish()), keys, counter.tokens, tally)


def merge_parts(task: MergeTask) -> Done:
    """Add up parts and write the sum to `task.target`; the parts are kept."""
    runs, tokens, tally = add_parts(task.sources)
    write_part(task.target, runs, key_type(task.vocabulary_size), tokens, tally)
    return Done(task, tally)


class MergeTree:
    """Which nodes are done, and which merges are possible now."""

    def __init__(self, shards: int, folder: Path) -> None:
        self._folder = folder
        self._widths = [shards]  # nodes of each level, up to the first level that a single merge can take
        while self._widths[-1] > FAN:
            self._widths.append(-(-self._widths[-1] // FAN))
        self._done: set[Node] = {node for node in self._nodes() if self.path(node).exists()}
        for node in [node for node in self._done if node.level > 0]:
            self._remove(self.children(node))  # left by a run that was killed between merging and removing

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

    def _remove(self, nodes: list[Node]) -> None:
        for node in nodes:
            self.path(node).unlink(missing_ok=True)
            self._done.discard(node)
