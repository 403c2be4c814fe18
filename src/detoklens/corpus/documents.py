"""The documents of a corpus: streamed, sampled, or cut into shards that are counted independently.

Shards depend on the inputs alone, not on workers or memory, so finished parts can be used by any later run. Large files
are cut by bytes (lines) or row groups (parquet), small ones are grouped, and a compressed file stays whole.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Generic, TypeVar

from detoklens.corpus.inputs import InputFile, find_inputs
from detoklens.corpus.reading import (
    Piece,
    ReadingOptions,
    Tally,
    TextColumn,
    count_records,
    longest_document,
    read_texts,
)
from detoklens.errors import DetokLensError, RangeError
from detoklens.parallel import available_cores, machine_memory

Kept = TypeVar("Kept")
AnyPiece = TypeVar("AnyPiece")

SMALLEST, LARGEST = 8 << 20, 128 << 20
"""Bytes of text per shard: 128 MB take about two seconds, and a small corpus still occupies every worker."""

SHARDS_OF_A_SMALL_CORPUS = 64
EXPANSION = 3
"""Typical size of text relative to its compressed file."""

SAMPLED_SHARDS, SAMPLED_DOCUMENTS, SAMPLED_BYTES = 32, 128, 4 << 10
"""Texts for comparing tokenizer libraries: 128 documents from at most 32 shards, and 4 kB of each."""


SMALLEST_SHARE = 32 << 20
"""Bytes of memory that a worker needs for its batch, keys and runs."""


def default_memory() -> int:
    """Return a quarter of the memory of this machine or container."""
    return machine_memory() // 4


def share_of(memory: int, workers: int) -> int:
    """Return the bytes of memory available to one worker."""
    share = memory // workers
    if share < SMALLEST_SHARE:
        raise DetokLensError(
            f"{memory >> 20} MB for {workers} workers is {share >> 20} MB each, but a worker needs "
            f"{SMALLEST_SHARE >> 20} MB; allow more memory or fewer workers"
        )
    return share


def read_documents(
    inputs: Sequence[str | Path], reading: ReadingOptions | None = None, tally: Tally | None = None
) -> Iterator[str]:
    """Stream the documents of files, folders, globs or a hub dataset, in order.

    A bad record is an error that names file and line, or is skipped with `reading.skip_bad`. `tally` counts what was
    read, repaired and skipped.
    """
    reading = reading or ReadingOptions()
    tally = tally if tally is not None else Tally()
    longest = longest_document(max(SMALLEST_SHARE, default_memory() // available_cores()))
    for shard in cut_into_shards(find_inputs(inputs), reading):
        for piece in shard.pieces:
            for _, text in read_texts(piece, reading, tally, longest):
                yield text.decode()


@dataclass(frozen=True)
class Sample(Generic[Kept]):
    """The result of `keep` for each sampled text, lowest rank first, and the number of texts read."""

    documents: list[Kept]
    read: int
    empty: int
    repeated: int


def rank(text: str, seed: int = 0) -> int:
    """Return the rank of a text: sha256 of the seed and the text, as a number."""
    return int.from_bytes(hashlib.sha256(f"{seed}\n{text}".encode()).digest())


def sample_by_hash(texts: Iterable[str], size: int, keep: Callable[[str], Kept], seed: int = 0) -> Sample[Kept]:
    """Return the `size` texts of lowest rank, or all if there are fewer.

    Texts are streamed; only `keep(text)` of current sample members is held in memory.
    """
    if size < 1:
        raise RangeError(f"documents must be at least 1, not {size}")
    chosen: dict[int, Kept] = {}
    worst_first: list[int] = []
    read = empty = repeated = 0
    for text in texts:
        read += 1
        place = rank(text, seed)
        if not text:
            empty += 1
        elif place in chosen:
            repeated += 1
        elif len(chosen) < size or place < -worst_first[0]:
            if len(chosen) == size:
                del chosen[-heapq.heappop(worst_first)]
            heapq.heappush(worst_first, -place)
            chosen[place] = keep(text)
    return Sample([chosen[place] for place in sorted(chosen)], read, empty, repeated)


@dataclass(frozen=True)
class Shard(Generic[AnyPiece]):
    """The work of one task: pieces of files and their approximate size in bytes."""

    index: int
    pieces: tuple[AnyPiece, ...]
    size: int


def cut_into_shards(
    files: Sequence[InputFile], options: ReadingOptions, limit_documents: int | None = None
) -> list[Shard[Piece]]:
    """Return the shards of a corpus, or of its first `limit_documents` documents."""
    target = shard_size(sum(map(_text_size, files)))
    pieces: Iterable[tuple[Piece, int]] = (piece for file in files for piece in _pieces(file, options, target))
    if limit_documents is not None:
        pieces = _limited(pieces, options, limit_documents)
    return list(group_pieces(pieces, target))


def _text_size(file: InputFile) -> int:
    return file.size * (EXPANSION if file.compression or file.kind == ".parquet" else 1)


def _pieces(file: InputFile, options: ReadingOptions, target: int) -> Iterator[tuple[Piece, int]]:
    """Yield (piece, bytes of text) of one file."""
    whole = Piece(file)
    if file.kind == ".parquet":
        start = size = 0
        groups = TextColumn(file, options.text_field).row_groups()
        for stop, (_, group_size) in enumerate(groups, 1):
            size += group_size
            if size >= target or stop == len(groups):
                yield replace(whole, start=start, stop=stop), size
                start, size = stop, 0
    elif file.compression or whole.is_one_document(options):
        yield whole, _text_size(file)
    else:
        for start in range(0, file.size, target):
            stop = min(start + target, file.size)
            yield replace(whole, start=start, stop=stop), stop - start


def _limited(pieces: Iterable[tuple[Piece, int]], options: ReadingOptions, limit: int) -> Iterator[tuple[Piece, int]]:
    """Yield the pieces with the first `limit` records; the last piece is read up to the limit."""
    for piece, size in pieces:
        if limit <= 0:
            return
        records = count_records(piece, options, limit)
        yield replace(piece, limit=limit), size
        limit -= records


def shard_size(total: int) -> int:
    """The bytes of a shard, for inputs of `total` bytes."""
    return min(max(total // SHARDS_OF_A_SMALL_CORPUS, SMALLEST), LARGEST)


def group_pieces(pieces: Iterable[tuple[AnyPiece, int]], target: int) -> Iterator[Shard[AnyPiece]]:
    """Combine small pieces, given with their sizes, into shards of about the target size."""
    index = size = 0
    group: list[AnyPiece] = []
    for piece, piece_size in pieces:
        if group and size + piece_size > target:
            yield Shard(index, tuple(group), size)
            index, size, group = index + 1, 0, []
        group.append(piece)
        size += piece_size
    if group:
        yield Shard(index, tuple(group), size)


def sample_texts(shards: Sequence[Shard[Piece]], reading: ReadingOptions, longest: int) -> list[bytes]:
    """Return the starts of texts from all over the input; the same input gives the same texts."""
    lenient = replace(reading, skip_bad=True)  # counting reports bad records
    chosen = shards[:: max(1, -(-len(shards) // SAMPLED_SHARDS))]
    texts: list[bytes] = []
    for shard in chosen:
        starts = (
            text[:SAMPLED_BYTES].decode(errors="ignore").encode()
            for piece in shard.pieces
            for _, text in read_texts(piece, lenient, Tally(), longest)
        )
        texts += islice(starts, -(-SAMPLED_DOCUMENTS // len(chosen)))
    return texts
