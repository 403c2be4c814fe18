"""Tokens whose queries may be exchanged for each other in the within-class null, and the draws of that null.

A head that only knows what kind of token follows what kind ranks the positives of any two tokens of one class alike. So
its AUROC stays the same when query tokens are exchanged within their class.
"""

from __future__ import annotations

import warnings

import numpy as np
from jaxtyping import Float, Int64
from scipy.cluster.vq import kmeans2
from scipy.sparse import csr_array

from detoklens.measures.auroc.positives import Positives, frequency_strata
from detoklens.parallel import one_core_each

DERANGEMENTS = 8
"""The null is their mean: over 1,321 query tokens a single draw has a standard deviation of 0.0045."""

CLUSTER_SIZE, MOST_CLUSTERS = 16, 128
DIMENSIONS = 32
"""Of the projected predecessor distributions that k-means sees."""
POWER_ITERATIONS = 4


def exchange_groups(
    classes: Int64[np.ndarray, "token"], token_counts: Int64[np.ndarray, "token"] | None
) -> Int64[np.ndarray, "token"]:
    """Class × frequency band: each class is split into octaves of counts, joined until a band has 16 tokens."""
    if token_counts is None:
        return classes
    groups, first = np.empty_like(classes), 0
    for each in np.unique(classes):
        members = classes == each
        bands = frequency_strata(token_counts[members])
        groups[members] = first + bands
        first += bands.max() + 1
    return groups


def derange_within(
    groups: Int64[np.ndarray, "member"], draws: int, random: np.random.Generator
) -> Int64[np.ndarray, "draw member"]:
    """For each member the place of another one of its group: its neighbour in a circle of random order.

    A member that is alone in its group gets its own place.
    """
    places = np.tile(np.arange(len(groups)), (draws, 1))
    for group in np.unique(groups):
        members = np.flatnonzero(groups == group)
        for draw in range(draws):
            circle = random.permutation(members)
            places[draw, circle] = np.roll(circle, -1)
    return places


def predecessor_clusters(positives: Positives, seed: int) -> Int64[np.ndarray, "token"]:
    """Clusters of query tokens with similar positives; tokens without any are one more cluster.

    k-means on √P(key | query) in its leading singular directions: about 16 tokens to a cluster, at most 128 clusters.
    """
    seen = np.flatnonzero(positives.sizes)
    clusters = np.zeros(positives.vocab_size, np.int64)
    n_clusters = min(len(seen) // CLUSTER_SIZE, MOST_CLUSTERS)
    if n_clusters < 2:
        return clusters
    projected, random = _projected(positives, seen, seed), np.random.default_rng(seed)
    with one_core_each(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="One of the clusters is empty")  # fewer distinct rows than clusters
        found = kmeans2(projected, n_clusters, iter=20, minit="++", seed=random)[1]
    clusters[seen] = found + 1
    return clusters


def _projected(positives: Positives, seen: Int64[np.ndarray, "seen"], seed: int) -> Float[np.ndarray, "seen dimension"]:
    """The rows √P(key | query) of unit length in their leading singular directions, by power iteration."""
    shares = positives.weights / np.repeat(positives.totals, positives.sizes)
    shape = (positives.vocab_size, positives.vocab_size)
    rows = csr_array((np.sqrt(shares), positives.keys.astype(np.int64), positives.indptr), shape=shape)[seen]
    start = np.random.default_rng(seed).standard_normal((positives.vocab_size, min(DIMENSIONS, len(seen))))
    with one_core_each():
        basis = np.linalg.qr(rows @ start)[0]
        for _ in range(POWER_ITERATIONS):
            basis = np.linalg.qr(rows @ (rows.T @ basis))[0]
        along = rows.T @ basis
        values, directions = np.linalg.eigh(along.T @ along)
    return basis @ (directions * np.sqrt(np.maximum(values, 0.0)))
