"""The documents of a corpus, streamed from any input that can be counted."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Generic, TypeVar

from detoklens.corpus.inputs import find_inputs
from detoklens.corpus.memory import default_share, longest_document
from detoklens.corpus.reading import read_texts, where
from detoklens.corpus.records import ReadingOptions, Tally
from detoklens.corpus.shards import cut_into_shards
from detoklens.errors import RangeError

Kept = TypeVar("Kept")


@dataclass(frozen=True)
class Sample(Generic[Kept]):
    """What was kept of each sampled text, lowest rank first, and the number of texts read."""

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
class Document:
    """A text and its source."""

    where: str
    text: str


def read_documents(
    inputs: Sequence[str | Path],
    reading: ReadingOptions | None = None,
    limit_documents: int | None = None,
    tally: Tally | None = None,
) -> Iterator[Document]:
    """Stream the documents of files, folders, globs or a hub dataset, in order.

    A bad record is an error that names file and line, or is skipped with `reading.skip_bad`. `tally` counts what was
    read, repaired and skipped.
    """
    reading = reading or ReadingOptions()
    tally = tally if tally is not None else Tally()
    longest = longest_document(default_share())
    documents = (
        Document(where(piece, number, reading), text.decode())
        for shard in cut_into_shards(find_inputs(inputs), reading)
        for piece in shard.pieces
        for number, text in read_texts(piece, reading, tally, longest)
    )
    return islice(documents, limit_documents)
