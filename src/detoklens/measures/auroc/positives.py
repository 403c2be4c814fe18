"""Which key tokens should a query token find, and how much does each weigh? The ground truth of an AUROC.

Pairs that a corpus holds, those of them that it holds more often than chance (PMI), or any others that are given.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Int, Int64, UInt32

from detoklens.corpus.csr import Bigrams


@dataclass(frozen=True)
class Positives:
    """Pairs (query, key) with whole weights: those of query t are [indptr[t] : indptr[t + 1]]. All else is negative."""

    indptr: Int64[np.ndarray, "token_and_end"]
    keys: UInt32[np.ndarray, "pair"]
    weights: Int64[np.ndarray, "pair"]

    @property
    def vocab_size(self) -> int:
        return len(self.indptr) - 1

    @cached_property
    def sizes(self) -> Int64[np.ndarray, "token"]:
        """How many positives has each query token?"""
        return np.diff(self.indptr)

    @cached_property
    def totals(self) -> Int64[np.ndarray, "token"]:
        """How much do the positives of each query token weigh together?"""
        summed = np.concatenate([[0], np.cumsum(self.weights)])
        return summed[self.indptr[1:]] - summed[self.indptr[:-1]]

    def of(self, token: int) -> tuple[UInt32[np.ndarray, "pair"], Int64[np.ndarray, "pair"]]:
        """The keys and weights of one query token."""
        row = slice(self.indptr[token], self.indptr[token + 1])
        return self.keys[row], self.weights[row]

    def equally_weighted(self) -> Positives:
        """The same pairs, each with weight 1."""
        return Positives(self.indptr, self.keys, np.ones_like(self.weights))

    def ahead(self) -> Positives:
        """The same pairs, asked from the other token: keys become queries."""
        queries = np.repeat(np.arange(self.vocab_size, dtype=np.uint32), self.sizes)
        order = np.argsort(self.keys, kind="stable")
        sizes = np.bincount(self.keys, minlength=self.vocab_size)
        return Positives(np.concatenate([[0], np.cumsum(sizes)]), queries[order], self.weights[order])

    def where(self, kept: Bool[np.ndarray, "pair"]) -> Positives:
        """Only some of the pairs; the others become negatives."""
        passed = np.concatenate([[0], np.cumsum(kept)])
        return Positives(passed[self.indptr], self.keys[kept], self.weights[kept])


def seen_pairs(bigrams: Bigrams) -> Positives:
    """Every pair that the corpus holds, weighted by its count: the paper's ground truth."""
    return Positives(bigrams.indptr, bigrams.prefixes, bigrams.counts)


def more_than_chance(bigrams: Bigrams, above: float = 0.0) -> Positives:
    """The pairs whose PMI is above a threshold, weighted by their count.

    PMI(j, i) = log2( count(j i) · total / (count(j ·) · count(· i)) ), in bits, all counts from the bigrams themselves.
    """
    pairs = seen_pairs(bigrams)
    before = np.bincount(pairs.keys, weights=pairs.weights, minlength=pairs.vocab_size)
    after = np.repeat(pairs.totals, pairs.sizes)
    pmi = np.log2(pairs.weights / after) + np.log2(pairs.weights.sum() / before[pairs.keys])
    return pairs.where(pmi > above)


def from_pairs(pairs: Iterable[tuple[int, int]], vocab_size: int) -> Positives:
    """Pairs (query, key), weighted by how often each is given."""
    listed: Int[np.ndarray, "pair two"] = np.array(list(pairs), np.int64).reshape(-1, 2)
    distinct, times = np.unique(listed, axis=0, return_counts=True)
    sizes = np.bincount(distinct[:, 0], minlength=vocab_size)
    return Positives(np.concatenate([[0], np.cumsum(sizes)]), distinct[:, 1].astype(np.uint32), times.astype(np.int64))
