"""Reproducible document samples: the documents whose texts have the smallest hashes.

A document's rank is sha256(seed, a line feed, its text in UTF-8). A sample depends on the texts alone, not on their
order, their files, the tokenizer or the machine. A larger sample contains every smaller one. Duplicates are taken once,
empty texts are skipped.
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
