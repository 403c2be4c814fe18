"""Groups of tokens whose queries are exchanged in the within-class and within-cluster nulls, and the draws.

A head that only knows which kinds of tokens follow each other ranks the positives of any two tokens of one kind alike.
Its AUROC therefore stays the same when queries are exchanged within that kind.
"""

from __future__ import annotations

import warnings

import numpy as np
from jaxtyping import Float, Int64
from scipy.cluster.vq import kmeans2
from scipy.sparse import csr_array
from scipy.spatial.distance import cdist

from detoklens.measures.auroc.positives import Positives, frequency_strata
from detoklens.parallel import one_core_each

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
    projected, random = _projected(positives, frequent, seed), np.random.default_rng(seed)
    with one_core_each(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="One of the clusters is empty")  # fewer distinct rows than clusters
        clusters[frequent] = kmeans2(projected, distant_rows(projected, n_clusters, random), 20, minit="matrix")[1]
    return clusters


def distant_rows(
    rows: Float[np.ndarray, "row dimension"], n_chosen: int, random: np.random.Generator
) -> Float[np.ndarray, "chosen dimension"]:
    """The start of k-means++: each row is drawn by its squared distance to the nearest one before it.

    `kmeans2(minit="++")` starts from the same rows, but computes all distances anew for each of them.
    """
    chosen, nearest = [int(random.integers(len(rows)))], np.full(len(rows), np.inf)
    while len(chosen) < n_chosen:
        nearest = np.minimum(nearest, cdist(rows[chosen[-1:]], rows, "sqeuclidean")[0])
        chosen.append(int(np.searchsorted((nearest / nearest.sum()).cumsum(), random.uniform())))
    return rows[chosen]


def _projected(
    positives: Positives, tokens: Int64[np.ndarray, "token"], seed: int
) -> Float[np.ndarray, "token dimension"]:
    """The rows √P(key | query) of unit length in their leading singular directions, by power iteration."""
    shares = positives.weights / np.repeat(positives.totals, positives.sizes)
    shape = (positives.vocab_size, positives.vocab_size)
    rows = csr_array((np.sqrt(shares), positives.keys.astype(np.int64), positives.indptr), shape=shape)[tokens]
    start = np.random.default_rng(seed).standard_normal((positives.vocab_size, min(DIMENSIONS, len(tokens))))
    with one_core_each():
        basis = np.linalg.qr(rows @ start)[0]
        for _ in range(POWER_ITERATIONS):
            basis = np.linalg.qr(rows @ (rows.T @ basis))[0]
        along = rows.T @ basis
        values, directions = np.linalg.eigh(along.T @ along)
    return basis @ (directions * np.sqrt(np.maximum(values, 0.0)))
