"""Cut a corpus into shards that are counted independently.

Shards depend on the inputs alone, not on workers or memory, so finished parts can be used by any later run. Large files
are cut by bytes (lines) or row groups (parquet), small ones are grouped, and a compressed file stays whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Generic, TypeVar

from detoklens.corpus.inputs import InputFile
from detoklens.corpus.parquet import row_group_sizes
from detoklens.corpus.reading import Piece, count_records, read_texts
from detoklens.corpus.records import ReadingOptions, Tally

SMALLEST, LARGEST = 8 << 20, 128 << 20
"""Bytes of text per shard: 128 MB take about two seconds, and a small corpus still occupies every worker."""

SHARDS_OF_A_SMALL_CORPUS = 64
EXPANSION = 3
"""Typical size of text relative to its compressed file."""

SAMPLED_SHARDS, SAMPLED_DOCUMENTS, SAMPLED_BYTES = 32, 128, 4 << 10
"""A sample has 128 documents from at most 32 shards, and 4 kB of each: compared in less than a second."""


AnyPiece = TypeVar("AnyPiece")


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
    total = sum(_text_size(file) for file in files)
    target = shard_size(total)
    pieces: Iterable[tuple[Piece, int]] = (piece for file in files for piece in _pieces(file, options, target))
    if limit_documents is not None:
        pieces = _limited(pieces, options, limit_documents)
    return list(group_pieces(pieces, target))


def sample_texts(shards: Sequence[Shard[Piece]], reading: ReadingOptions, longest: int) -> list[bytes]:
    """Return texts from all over the input for comparing tokenizer libraries; the same input gives the same texts."""
    chosen = shards[:: max(1, -(-len(shards) // SAMPLED_SHARDS))]
    per_shard = -(-SAMPLED_DOCUMENTS // max(1, len(chosen)))
    return [text for shard in chosen for text in islice(_texts(shard, reading, longest), per_shard)]


def _texts(shard: Shard[Piece], reading: ReadingOptions, longest: int) -> Iterator[bytes]:
    """Yield the start of each document. Bad records are skipped here; counting reports them."""
    lenient = replace(reading, skip_bad=True)
    for piece in shard.pieces:
        for _, text in read_texts(piece, lenient, Tally(), longest):
            yield text[:SAMPLED_BYTES].decode(errors="ignore").encode()


def _text_size(file: InputFile) -> int:
    return file.size * (EXPANSION if file.compression or file.kind == ".parquet" else 1)


def _pieces(file: InputFile, options: ReadingOptions, target: int) -> Iterator[tuple[Piece, int]]:
    """Yield (piece, bytes of text) of one file."""
    whole = Piece(file.name, file.path, file.kind, file.compression)
    if file.kind == ".parquet":
        yield from _row_group_pieces(whole, options, target)
    elif file.compression or (file.kind == ".txt" and not options.document_per_line):
        yield whole, _text_size(file)
    else:
        for start in range(0, file.size, target):
            stop = min(start + target, file.size)
            yield replace(whole, start=start, stop=stop), stop - start


def _row_group_pieces(whole: Piece, options: ReadingOptions, target: int) -> Iterator[tuple[Piece, int]]:
    start = size = 0
    groups = row_group_sizes(whole.name, whole.path, options.text_field)
    for group, (_, group_size) in enumerate(groups, 1):
        size += group_size
        if size >= target or group == len(groups):
            yield replace(whole, start=start, stop=group), size
            start, size = group, 0


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
