"""How often does each token follow each other? Counting is a sort.

A pair is one number, suffix · V + prefix. Numbers are collected, sorted in place and run-length encoded; sorted runs
add up to sorted runs. Memory is bounded: what grows too large goes to a file, to be merged at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int64, UInt

from detoklens.corpus.encoding import Encoded
from detoklens.engines.interrupts import interrupts_deferred
from detoklens.kernels.bigrams import add_runs, add_token_counts, run_lengths, write_pair_keys

COUNT_BYTES = 8


class Run(NamedTuple):
    """Distinct pair keys in rising order, each with its count."""

    keys: UInt[np.ndarray, "pair"]
    counts: Int64[np.ndarray, "pair"]

    @property
    def nbytes(self) -> int:
        return self.keys.nbytes + self.counts.nbytes


def key_type(vocabulary_size: int) -> np.dtype[Any]:
    """uint32 where every suffix · V + prefix fits into it (sorted twice as fast), else uint64."""
    return np.dtype(np.uint32 if vocabulary_size**2 < 2**32 else np.uint64)


def empty_run(vocabulary_size: int) -> Run:
    return Run(np.empty(0, key_type(vocabulary_size)), np.empty(0, np.int64))


def add_all(runs: list[Run]) -> Run:
    """The sum of sorted runs, added two by two."""
    while len(runs) > 1:
        with interrupts_deferred():
            pairs = [Run(*add_runs(*left, *right)) for left, right in zip(runs[::2], runs[1::2], strict=False)]
        runs = pairs + runs[2 * len(pairs) :]
    return runs[0]


class PairCounter:
    """Counts tokens and bigrams of batches; `spill` takes a run away when `memory` bytes would not hold it.

    Of the memory, 3/8 are for fresh keys with their runs (24 bytes a key at worst: the key, its run, the sum's copy),
    half for the sum so far and its successor.
    """

    def __init__(self, vocabulary_size: int, memory: int, spill: Callable[[Run], None]) -> None:
        self.vocabulary_size = vocabulary_size
        self.tokens = np.zeros(vocabulary_size, np.int64)
        kind = key_type(vocabulary_size)
        self._keys = np.empty(max(2, memory * 3 // 8 // (2 * (kind.itemsize + COUNT_BYTES))), kind)
        self._filled = 0
        self._sum = empty_run(vocabulary_size)
        self._largest_sum = memory // 4
        self._spill = spill

    def add(self, encoded: Encoded) -> None:
        """Count a batch of documents."""
        with interrupts_deferred():
            add_token_counts(encoded.ids, self.tokens)
        for ids, offsets in self._portions(encoded):
            if self._filled + len(ids) > len(self._keys):
                self._sort_keys()
            with interrupts_deferred():
                self._filled = write_pair_keys(ids, offsets, self.vocabulary_size, self._keys, self._filled)

    def finish(self) -> Run:
        """The bigrams since the last spill."""
        self._sort_keys()
        return self._sum

    def _portions(self, encoded: Encoded) -> list[Encoded]:
        """The batch whole, or in pieces that overlap by one token where it is larger than the room for keys."""
        room = len(self._keys)
        if len(encoded.ids) <= room:
            return [encoded]
        pieces = []
        for start, stop in zip(encoded.offsets[:-1], encoded.offsets[1:], strict=True):
            for place in range(start, stop, room - 1):
                ids = encoded.ids[place : min(place + room, stop)]
                pieces.append(Encoded(ids, np.array([0, len(ids)])))
        return pieces

    def _sort_keys(self) -> None:
        fresh = self._keys[: self._filled]
        fresh.sort()
        with interrupts_deferred():
            self._sum = Run(*add_runs(*self._sum, *run_lengths(fresh)))
        self._filled = 0
        if self._sum.nbytes > self._largest_sum:
            self._spill(self._sum)
            self._sum = empty_run(self.vocabulary_size)
