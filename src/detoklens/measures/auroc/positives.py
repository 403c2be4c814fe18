"""The ground truth of an AUROC: corpus bigrams, those above a PMI, or given pairs, with weights."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float32, Int, Int64, UInt32

from detoklens.corpus.counts import Bigrams

FEWEST_IN_STRATUM = 16  # equally frequent tokens


def frequency_strata(token_counts: Int64[np.ndarray, "token"], per_octave: int = 1) -> Int64[np.ndarray, "token"]:
    """The stratum of each token, 0 the rarest: unseen, seen once, 2 to 3 times, 4 to 7 times, and so on.

    `per_octave` splits each octave into bins of equal ratio. From the most frequent down, neighbouring bins are joined
    until they hold 16 tokens; a remainder at the bottom joins the bin above. Unseen tokens are always a separate
    stratum, since nothing shows that they resemble rare ones.
    """
    levels = _levels(token_counts, per_octave)
    seen = levels > 0
    if not seen.any():
        return np.zeros(len(levels), np.int64)
    gathered, ends = 0, []
    for level, size in reversed(list(enumerate(np.bincount(levels[seen])))):
        gathered += size
        if gathered >= FEWEST_IN_STRATUM:
            ends.append(level)
            gathered = 0
    joined = np.searchsorted(np.array(ends[-2::-1], np.int64), levels, side="right")
    return np.where(seen, joined + (not seen.all()), 0)


def _levels(token_counts: Int64[np.ndarray, "token"], per_octave: int) -> Int64[np.ndarray, "token"]:
    """0 for an unseen token, else 1 + the number of bins wholly below its count."""
    mantissa, octave = np.frexp(token_counts.astype(np.float64))
    cuts = 2.0 ** (np.arange(1, per_octave) / per_octave - 1)
    parts = (octave.astype(np.int64) - 1) * per_octave + np.searchsorted(cuts, mantissa, side="right")
    return np.where(token_counts > 0, parts + 1, 0)


def frequency_ranks(token_counts: Int64[np.ndarray, "token"]) -> Float32[np.ndarray, "token"]:
    """Scores that order tokens by count, with ties; ranks, because float32 can't represent every count."""
    return np.unique(token_counts, return_inverse=True)[1].astype(np.float32)


@dataclass(frozen=True)
class Positives:
    """Positive pairs (query, key) with integer weights; those of query t are [indptr[t] : indptr[t + 1]]."""

    indptr: Int64[np.ndarray, "token_and_end"]
    keys: UInt32[np.ndarray, "pair"]
    weights: Int64[np.ndarray, "pair"]

    @property
    def vocab_size(self) -> int:
        return len(self.indptr) - 1

    @cached_property
    def sizes(self) -> Int64[np.ndarray, "token"]:
        """The number of positives of each query token."""
        return np.diff(self.indptr)

    @cached_property
    def totals(self) -> Int64[np.ndarray, "token"]:
        """The total weight of each query token's positives."""
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
        """The same pairs with queries and keys exchanged."""
        queries = np.repeat(np.arange(self.vocab_size, dtype=np.uint32), self.sizes)
        order = np.argsort(self.keys, kind="stable")
        sizes = np.bincount(self.keys, minlength=self.vocab_size)
        return Positives(np.concatenate([[0], np.cumsum(sizes)]), queries[order], self.weights[order])

    def where(self, kept: Bool[np.ndarray, "pair"]) -> Positives:
        """Only some of the pairs; the others become negatives."""
        passed = np.concatenate([[0], np.cumsum(kept)])
        return Positives(passed[self.indptr], self.keys[kept], self.weights[kept])


def seen_pairs(bigrams: Bigrams) -> Positives:
    """All corpus bigrams, weighted by count: the paper's ground truth."""
    return Positives(bigrams.indptr, bigrams.prefixes, bigrams.counts)


def more_than_chance(bigrams: Bigrams, above: float = 0.0) -> Positives:
    """The bigrams whose PMI is above a threshold, weighted by count.

    PMI(j, i) = log2( count(j i) · total / (count(j ·) · count(· i)) ), in bits, all counts from the bigrams themselves.
    """
    pairs = seen_pairs(bigrams)
    before = np.bincount(pairs.keys, weights=pairs.weights, minlength=pairs.vocab_size)
    after = np.repeat(pairs.totals, pairs.sizes)
    pmi = np.log2(pairs.weights / after) + np.log2(pairs.weights.sum() / before[pairs.keys])
    return pairs.where(pmi > above)


def from_pairs(pairs: Iterable[tuple[int, int]], vocab_size: int) -> Positives:
    """Pairs (query, key), weighted by their number of occurrences."""
    listed: Int[np.ndarray, "pair two"] = np.array(list(pairs), np.int64).reshape(-1, 2)
    distinct, times = np.unique(listed, axis=0, return_counts=True)
    sizes = np.bincount(distinct[:, 0], minlength=vocab_size)
    return Positives(np.concatenate([[0], np.cumsum(sizes)]), distinct[:, 1].astype(np.uint32), times.astype(np.int64))
