"""Count bigrams by sorting.

A pair is one number, suffix · V + prefix. Numbers are collected, sorted in place and run-length encoded; the sum of
sorted runs is a sorted run. Memory is bounded: runs that grow too large are spilled to files and merged at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int64, UInt

from detoklens.corpus.encoding import Encoded
from detoklens.engines import interrupts_deferred
from detoklens.kernels.tokens import add_runs, add_token_counts, run_lengths, write_pair_keys

COUNT_BYTES = 8


class Run(NamedTuple):
    """Distinct pair keys in ascending order, each with its count."""

    keys: UInt[np.ndarray, "pair"]
    counts: Int64[np.ndarray, "pair"]

    @property
    def nbytes(self) -> int:
        return self.keys.nbytes + self.counts.nbytes


def key_type(vocabulary_size: int) -> np.dtype[Any]:
    """uint32 if every suffix · V + prefix fits (it sorts twice as fast), else uint64."""
    return np.dtype(np.uint32 if vocabulary_size**2 < 2**32 else np.uint64)


def empty_run(vocabulary_size: int) -> Run:
    return Run(np.empty(0, key_type(vocabulary_size)), np.empty(0, np.int64))


def add_all(runs: list[Run]) -> Run:
    """The sum of sorted runs, added in pairs."""
    while len(runs) > 1:
        with interrupts_deferred():
            pairs = [Run(*add_runs(*left, *right)) for left, right in zip(runs[::2], runs[1::2], strict=False)]
        runs = pairs + runs[2 * len(pairs) :]
    return runs[0]


class PairCounter:
    """Counts tokens and bigrams of batches; `spill` gets a run that does not fit into `memory` bytes.

    3/8 of the memory is for new keys with their runs (at most 24 bytes per key: the key, its run, the copy in the sum),
    half is for the current sum and its successor.
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

    def add_counts(
        self, suffixes: Int64[np.ndarray, "row"], prefixes: Int64[np.ndarray, "row"], counts: Int64[np.ndarray, "row"]
    ) -> None:
        """Add bigrams that were counted before; a token's count is the number of bigrams that it ends."""
        np.add.at(self.tokens, suffixes, counts)
        keys = suffixes.astype(np.uint64) * np.uint64(self.vocabulary_size) + prefixes.astype(np.uint64)
        keys, rows = np.unique(keys.astype(self._keys.dtype), return_inverse=True)
        sums = np.zeros(len(keys), np.int64)
        np.add.at(sums, rows, counts)
        self._add(Run(keys, sums))

    def finish(self) -> Run:
        """The bigrams since the last spill."""
        self._sort_keys()
        return self._sum

    def _portions(self, encoded: Encoded) -> Iterator[Encoded]:
        """The batch, or pieces that overlap by one token if it exceeds the buffer of keys."""
        capacity = len(self._keys)
        if len(encoded.ids) <= capacity:
            yield encoded
            return
        for start, stop in pairwise(encoded.offsets):
            for place in range(start, stop, capacity - 1):
                ids = encoded.ids[place : min(place + capacity, stop)]
                yield Encoded(ids, np.array([0, len(ids)]))

    def _sort_keys(self) -> None:
        fresh = self._keys[: self._filled]
        fresh.sort()
        with interrupts_deferred():
            run = Run(*run_lengths(fresh))
        self._filled = 0
        self._add(run)

    def _add(self, run: Run) -> None:
        with interrupts_deferred():
            self._sum = Run(*add_runs(*self._sum, *run))
        if self._sum.nbytes > self._largest_sum:
            self._spill(self._sum)
            self._sum = empty_run(self.vocabulary_size)
