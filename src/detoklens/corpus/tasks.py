"""The two pure functions that engines run: count a shard into a part, merge parts into one.

Both write exactly one file, whole or not at all, and give the same file however often they are started: a lost worker's
task is simply started again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from detoklens.corpus.encoding import Encoded, Encoder, open_encoder
from detoklens.corpus.merging import Node, Spills
from detoklens.corpus.pairs import PairCounter, key_type
from detoklens.corpus.parts import Part, merged_blocks, sum_of_tallies, sum_of_tokens, write_part
from detoklens.corpus.pieces import read_texts
from detoklens.corpus.records import ReadingOptions, Tally
from detoklens.corpus.shards import Shard
from detoklens.errors import TokenError


@dataclass(frozen=True)
class CountTask:
    """Count one shard."""

    shard: Shard
    target: Path
    tokenizer: Path
    library: str
    parse_special_tokens: bool
    vocabulary_size: int
    reading: ReadingOptions
    batch: int
    memory: int


@dataclass(frozen=True)
class MergeTask:
    """Add up the parts below a node of the merge tree."""

    node: Node
    sources: tuple[Path, ...]
    target: Path
    vocabulary_size: int


@dataclass(frozen=True)
class Done:
    """A finished task: the part's file and the tally of its documents."""

    task: CountTask | MergeTask
    tally: Tally


def perform(task: CountTask | MergeTask) -> Done:
    """Run a task of either kind."""
    return count_shard(task) if isinstance(task, CountTask) else merge_parts(task)


def count_shard(task: CountTask) -> Done:
    """Read, tokenize and count a shard, and write its part to `task.target`."""
    keys = key_type(task.vocabulary_size)
    encoder = open_encoder(task.library, task.tokenizer, task.parse_special_tokens)
    tally = Tally()
    with Spills(task.target, keys) as spills:
        counter = PairCounter(task.vocabulary_size, _memory_for_pairs(task), spills.put_away)
        _count_batches(task, encoder, counter, tally)
        runs = spills.merged_with(counter.finish())
        write_part(task.target, runs, keys, counter.tokens, tally)
    return Done(task, tally)


def merge_parts(task: MergeTask) -> Done:
    """Add up parts and write the sum to `task.target`; the parts are kept."""
    parts = [Part(path) for path in task.sources]
    tally = sum_of_tallies(parts)
    keys = key_type(task.vocabulary_size)
    write_part(task.target, merged_blocks(parts), keys, sum_of_tokens(parts), tally)
    return Done(task, tally)


def _count_batches(task: CountTask, encoder: Encoder, counter: PairCounter, tally: Tally) -> None:
    for texts in _batches(task, tally):
        encoded = encoder.encode(texts)
        _check_documents(task, encoded, len(texts))
        tally.tokens += len(encoded.ids)
        tally.documents_with_tokens += int(np.count_nonzero(np.diff(encoded.offsets)))
        counter.add(encoded)


def _check_documents(task: CountTask, encoded: Encoded, documents: int) -> None:
    """Refuse ids whose number of documents differs from the input's."""
    offsets = encoded.offsets
    if len(offsets) != documents + 1 or offsets[0] != 0 or offsets[-1] != len(encoded.ids):
        raise TokenError(
            f"{task.library} gave ids of {len(offsets) - 1} documents for {documents}; install another version of it"
        )


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


def longest_document(memory: int) -> int:
    """The largest document that fits: with its parsed copy and ids, it takes about eight times its size."""
    return memory // 16


def _memory_for_pairs(task: CountTask) -> int:
    """Memory left by a batch, which takes about sixteen times its size if every word is new."""
    return max(task.memory // 2, task.memory - 16 * task.batch)
