"""The ground truth of an AUROC, and the groups of tokens within which its nulls exchange queries.

Ground truth: corpus bigrams, those above a PMI, or given pairs, with weights.

Groups: a head that only knows which kinds of tokens follow each other ranks the positives of any two tokens of one kind
alike. Its AUROC therefore stays the same when queries are exchanged within that kind.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Float32, Int, Int64, UInt32
from scipy.cluster.vq import kmeans2
from scipy.sparse import csr_array
from scipy.spatial.distance import cdist

from detoklens.corpus.counts import Bigrams
from detoklens.parallel import one_core_each

FEWEST_IN_STRATUM = 16  # equally frequent tokens


def frequency_strata(token_counts: Int64[np.ndarray, "token"], per_octave: int = 1) -> Int64[np.ndarray, "token"]:
    """The stratum of each token, 0 the rarest: unseen, seen once, 2 to 3 times, 4 to 7 times, and so on.

    `per_octave` splits each octave into bins of equal ratio. From the most frequent down, neighbouring bins are joined
    until they hold 16 tokens; a remainder at the bottom joins the bin above. Unseen tokens are always a separate
    stratum, since nothing shows that they resemble rare ones.
    """
    mantissa, octave = np.frexp(token_counts.astype(np.float64))
    cuts = 2.0 ** (np.arange(1, per_octave) / per_octave - 1)
    bins = (octave.astype(np.int64) - 1) * per_octave + np.searchsorted(cuts, mantissa, side="right")
    seen = token_counts > 0
    levels = np.where(seen, bins + 1, 0)
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


DERANGEMENTS = 8
"""The null is their mean: over 1,321 query tokens a single draw has a standard deviation of 0.0045."""

UNGROUPED = -1
CLUSTER_SIZE, FEWEST_CLUSTERS, MOST_CLUSTERS = 8, 24, 128
"""Clusters must outnumber the kinds of tokens that a head may know: a planted head that knows 16 kinds and no pair
exceeded the null by 0.10 with 2 clusters, by 0.15 with 8 and by up to 0.05 with 14 to 16."""
FEWEST_BIGRAMS = 32
"""Per clustered token. With fewer, tokens of one kind share too few predecessors to be found together."""
DIMENSIONS = 32  # of the predecessor distributions that k-means sees
POWER_ITERATIONS = 4


def exchange_groups(
    classes: Int64[np.ndarray, "token"], token_counts: Int64[np.ndarray, "token"] | None
) -> Int64[np.ndarray, "token"]:
    """Class × frequency band: each class is split into octaves of counts, joined until a band has 16 tokens."""
    if token_counts is None:
        return classes
    groups, first = np.full_like(classes, UNGROUPED), 0
    for each in np.unique(classes[classes != UNGROUPED]):
        members = classes == each
        bands = frequency_strata(token_counts[members])
        groups[members] = first + bands
        first += bands.max() + 1
    return groups


def derange_within(
    groups: Int64[np.ndarray, "member"], draws: int, random: np.random.Generator
) -> Int64[np.ndarray, "draw member"]:
    """For each member the place of another member of its group: its neighbour in a circle of random order.

    A member that is alone in its group, or ungrouped, keeps its own place.
    """
    places = np.tile(np.arange(len(groups)), (draws, 1))
    for group in np.unique(groups[groups != UNGROUPED]):
        members = np.flatnonzero(groups == group)
        for draw in range(draws):
            circle = random.permutation(members)
            places[draw, circle] = np.roll(circle, -1)
    return places


def predecessor_clusters(positives: Positives, seed: int) -> Int64[np.ndarray, "token"]:
    """The cluster of each token among tokens with similar positives; tokens with fewer than 32 bigrams are ungrouped.

    k-means on √P(key | query) in its leading singular directions: about 8 tokens per cluster, 24 to 128 clusters. With
    fewer than 192 tokens to cluster, all are ungrouped.
    """
    frequent = np.flatnonzero(positives.totals >= FEWEST_BIGRAMS)
    clusters = np.full(positives.vocab_size, UNGROUPED)
    n_clusters = min(len(frequent) // CLUSTER_SIZE, MOST_CLUSTERS)
    if n_clusters < FEWEST_CLUSTERS:
        return clusters
    shares = positives.weights / np.repeat(positives.totals, positives.sizes)
    shape = (positives.vocab_size, positives.vocab_size)
    rows = csr_array((np.sqrt(shares), positives.keys.astype(np.int64), positives.indptr), shape=shape)[frequent]
    start = np.random.default_rng(seed).standard_normal((positives.vocab_size, min(DIMENSIONS, len(frequent))))
    with one_core_each(), warnings.catch_warnings():
        basis = np.linalg.qr(rows @ start)[0]
        for _ in range(POWER_ITERATIONS):
            basis = np.linalg.qr(rows @ (rows.T @ basis))[0]
        along = rows.T @ basis
        values, directions = np.linalg.eigh(along.T @ along)
        projected = basis @ (directions * np.sqrt(np.maximum(values, 0.0)))
        centres = distant_rows(projected, n_clusters, np.random.default_rng(seed))
        warnings.filterwarnings("ignore", message="One of the clusters is empty")  # fewer distinct rows than clusters
        clusters[frequent] = kmeans2(projected, centres, 20, minit="matrix")[1]
    return clusters


def distant_rows(
    rows: Float[np.ndarray, "row dimension"], n_chosen: int, random: np.random.Generator
) -> Float[np.ndarray, "chosen dimension"]:
    """The start of k-means++: each row is drawn by its squared distance to the nearest one before it.

    `kmeans2(minit="++")` starts from the same rows, but computes all distances again for each of them.
    """
    chosen, nearest = [int(random.integers(len(rows)))], np.full(len(rows), np.inf)
    while len(chosen) < n_chosen:
        nearest = np.minimum(nearest, cdist(rows[chosen[-1:]], rows, "sqeuclidean")[0])
        chosen.append(int(np.searchsorted((nearest / nearest.sum()).cumsum(), random.uniform())))
    return rows[chosen]
