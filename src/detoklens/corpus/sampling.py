"""Which documents stand for a corpus? Those whose texts have the smallest hashes, the same ones for everybody.

A document's rank is sha256(seed, a line feed, its text in UTF-8), and the documents of lowest rank are the sample. It
depends on the texts alone: not on their order, their files, the tokenizer, or the machine. A larger sample holds every
smaller one. A text that occurs twice is taken once; empty texts are passed over.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from detoklens.errors import RangeError

Kept = TypeVar("Kept")


@dataclass(frozen=True)
class Sample(Generic[Kept]):
    """What was kept of each sampled text, lowest rank first, and how many texts there were to choose from."""

    documents: list[Kept]
    read: int
    empty: int
    repeated: int


def rank(text: str, seed: int = 0) -> int:
    """The place of a text in the order of all texts: sha256 of the seed and the text as a number."""
    return int.from_bytes(hashlib.sha256(f"{seed}\n{text}".encode()).digest())


def sample_by_hash(texts: Iterable[str], size: int, keep: Callable[[str], Kept], seed: int = 0) -> Sample[Kept]:
    """The `size` texts of lowest rank, or all where there are fewer.

    Texts are streamed: only `keep(text)` of those that may still be in the sample is held.
    """
    if size < 1:
        raise RangeError(f"{size} documents were asked for; ask for at least 1")
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
