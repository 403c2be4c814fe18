"""Rank keys and pairs by Tᵉᵉ. The largest pairs are found tile by tile, never with V × V scores in memory.

1. Queries and keys are ordered from the longest vector to the shortest. The floor is the score of the worst pair kept.
2. Tiles of 504 × 2048 scores whose longest query times longest key stays below the floor are skipped.
3. In the other tiles, a product of 25 dimensions bounds every score from above, 6 × 32 scores at a time; only where a
   bound reaches the floor are the scores computed. No pair is missed: bounds allow for rounding.

Larger scores come first; ties are ordered by query id, then key id. A score has the same bits in any tile, block and
thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from threading import Lock

import numpy as np
from jaxtyping import Float, Int

from detoklens.corpus.counts import Counts
from detoklens.kernels import product
from detoklens.kernels.ranking import rank_rows
from detoklens.parallel import Arrays, Runner
from detoklens.scores.affinity import Affinity

FEW_QUERIES = 32


def pair_counts(
    counts: Counts, keys: Int[np.ndarray, "pair"], queries: Int[np.ndarray, "pair"]
) -> Int[np.ndarray, "pair"]:
    """count(key followed by query) of each pair."""
    found = np.zeros(len(keys), np.int64)
    order = np.argsort(queries, kind="stable")
    distinct, starts = np.unique(queries[order], return_index=True)
    if len(distinct) > FEW_QUERIES:
        counts.bigrams  # noqa: B018  read the whole file once instead of a part per query
    for query, pairs in zip(distinct, np.split(order, starts[1:]), strict=False):
        prefixes, occurrences = counts.predecessors(int(query))
        if len(prefixes):
            own = keys[pairs].astype(prefixes.dtype)
            places = np.minimum(np.searchsorted(prefixes, own), len(prefixes) - 1)
            found[pairs] = np.where(prefixes[places] == own, occurrences[places], 0)
    return found


ALONE = Runner()
BLOCK_BYTES = 32 << 20  # scores of a block: 160 queries of GPT-2's vocabulary
GROUP = 64  # keys whose largest score is compared first


@dataclass(frozen=True)
class HeadScores:
    """Tᵉᵉ of one head against all keys, which are packed once."""

    keys: product.Panels
    n_keys: int

    @classmethod
    def of(cls, key: Float[np.ndarray, "token d_head"]) -> HeadScores:
        return cls(product.key_panels(key), len(key))

    def rows(self, query: Float[np.ndarray, "query d_head"]) -> Float[np.ndarray, "query key"]:
        """The scores of some queries."""
        return product.multiply(product.query_panels(query), self.keys)[: len(query), : self.n_keys]


def scores_of(affinity: Affinity, token: int) -> Float[np.ndarray, "head key"]:
    """Tᵉᵉ of one query token in every head."""
    heads = enumerate(affinity.query)
    return np.stack([HeadScores.of(affinity.key_of(head)).rows(query[[token]])[0] for head, query in heads])


def top_keys(scores: Float[np.ndarray, "query key"], top: int) -> Int[np.ndarray, "query rank"]:
    """The ids of each row's `top` largest scores, best first, ties by id; all ids if there are fewer.

    The `top`-th largest maximum over groups of keys is a floor that at least `top` scores reach, and few more; only
    those are sorted. That takes two passes over the scores, a partition takes many.
    """
    top = min(top, scores.shape[1])
    size = max(1, min(GROUP, scores.shape[1] // top))
    groups = scores.shape[1] // size
    largest = scores[:, : groups * size].reshape(len(scores), size, groups).max(axis=1)
    floor = np.partition(largest, groups - top, axis=1)[:, groups - top, None]
    rows, keys = np.divmod(np.flatnonzero(scores >= floor), scores.shape[1])
    order = np.lexsort((keys, -scores[rows, keys], rows))
    first = np.searchsorted(rows, np.arange(len(scores)))
    return keys[order][first[:, None] + np.arange(top)]


def pair_ranks(
    affinity: Affinity,
    queries: Int[np.ndarray, "pair"],
    keys: Int[np.ndarray, "choice pair"],
    runner: Runner = ALONE,
) -> tuple[Int[np.ndarray, "choice head pair"], Float[np.ndarray, "choice head pair"]]:
    """The rank among all keys and the score of one or several keys per query, in each head."""
    shape = (len(keys), affinity.n_heads, len(queries))
    ranks, scores = np.empty(shape, np.int64), np.empty(shape, affinity.shared_key.dtype)
    step = max(1, BLOCK_BYTES // (affinity.vocab_size * affinity.shared_key.itemsize))

    def rank(head: int) -> None:
        scorer = HeadScores.of(affinity.key_of(head))
        for begin in range(0, len(queries), step):
            block = slice(begin, begin + step)
            rows = scorer.rows(affinity.query[head, queries[block]])
            for choice, chosen in enumerate(keys[:, block]):
                rank_rows(rows, chosen, ranks[choice, head, block])
                scores[choice, head, block] = rows[np.arange(len(chosen)), chosen]

    list(runner.map(rank, range(affinity.n_heads)))
    return ranks, scores


TILE_QUERIES, TILE_KEYS = 504, 2048
BLOCK_QUERIES = 16 * TILE_QUERIES
BOUNDING = 24
"""Dimensions of the upper bound, out of 64 or 128: more of them skip more tiles, and cost more on every tile."""
CONDITION = 1e-6  # smallest relative variance of a dimension that is divided by


@dataclass
class TopPairs:
    """The best pairs so far. Offered pairs are collected, and pruned when there are many."""

    top: int
    floor: float = -np.inf
    _waiting: list[Arrays] = field(default_factory=list)
    _n_waiting: int = 0

    def offer(self, pairs: Arrays) -> None:
        """Add pairs (score, query, key) that reach the floor."""
        self._waiting.append(pairs)
        self._n_waiting += len(pairs["score"])
        if self._n_waiting > 2 * self.top:
            self.best()

    def best(self) -> Arrays:
        """The best `top` of all offered pairs, best first; raises the floor to the last of them."""
        if not self._waiting:
            return {"score": np.empty(0, np.float32), "query": np.empty(0, np.int64), "key": np.empty(0, np.int64)}
        pairs = {name: np.concatenate([some[name] for some in self._waiting]) for name in ("score", "query", "key")}
        if len(pairs["score"]) > self.top:
            self.floor = float(np.partition(pairs["score"], -self.top)[-self.top])
            pairs = _chosen(pairs, pairs["score"] >= self.floor)
        pairs = _chosen(pairs, np.lexsort((pairs["key"], pairs["query"], -pairs["score"]))[: self.top])
        self._waiting, self._n_waiting = [pairs], len(pairs["score"])
        return pairs


def _chosen(pairs: Arrays, which: np.ndarray) -> Arrays:
    return {name: column[which] for name, column in pairs.items()}


@dataclass(frozen=True)
class BoundedSide:
    """The queries or keys of a head, from the longest to the shortest, as panels of vectors and of bounding vectors.

    q · k = q′ · k′ for the balanced vectors q′ and k′. A bounding vector holds the leading dimensions of a balanced one
    and the length of the rest, so the product of two is at least q · k (Cauchy-Schwarz on the rest).
    """

    ids: Int[np.ndarray, "token"]
    lengths: Float[np.ndarray, "token"]
    panels: product.Panels
    bounding: product.Panels


@dataclass(frozen=True)
class BoundedScores:
    """A head's scores with upper bounds; `slack` covers the rounding of both."""

    query: BoundedSide
    key: BoundedSide
    slack: float

    @classmethod
    def of(
        cls,
        query: Float[np.ndarray, "token d_head"],
        key: Float[np.ndarray, "token d_head"],
        ids: Int[np.ndarray, "kept"],
    ) -> BoundedScores:
        pack: tuple[Callable[[np.ndarray], product.Panels], ...] = (product.query_panels, product.key_panels)
        chosen, sides, longest = (query[ids], key[ids]), [], 1.0
        for vectors, basis, panels in zip(chosen, _balanced(*chosen), pack, strict=True):
            balanced = vectors @ basis
            lengths, rest = (np.sqrt(np.einsum("td,td->t", part, part)) for part in (balanced, balanced[:, BOUNDING:]))
            longest *= max(float(lengths.max()), float(np.linalg.norm(vectors, axis=1).max()))
            bounding = np.column_stack([balanced[:, :BOUNDING], rest]).astype(vectors.dtype)
            order = np.argsort(-lengths, kind="stable")
            sides.append(BoundedSide(ids[order], lengths[order], panels(vectors[order]), panels(bounding[order])))
        rounding = 2 * (query.shape[1] + 2 * BOUNDING) * float(np.finfo(query.dtype).eps)
        return cls(sides[0], sides[1], rounding * longest)


def _balanced(
    query: Float[np.ndarray, "token d_head"], key: Float[np.ndarray, "token d_head"]
) -> tuple[Float[np.ndarray, "d_head d_head"], Float[np.ndarray, "d_head d_head"]]:
    """A and B with q A · k B = q · k, and the same mean square of both sides in each dimension, largest first."""
    roots, inverses = [], []
    for side in (query, key):
        vectors = side.astype(np.float64)
        values, directions = np.linalg.eigh(vectors.T @ vectors / len(vectors))
        widths = np.sqrt(np.maximum(values, max(CONDITION * values[-1], np.finfo(np.float64).tiny)))
        roots.append(directions * widths)
        inverses.append(directions / widths)
    left, spread, right = np.linalg.svd(roots[0].T @ roots[1])
    return inverses[0] @ left * np.sqrt(spread), inverses[1] @ right.T * np.sqrt(spread)


def largest_pairs(
    factors: Callable[[int], tuple[Float[np.ndarray, "token d_head"], Float[np.ndarray, "token d_head"]]],
    n_heads: int,
    ids: Int[np.ndarray, "kept"],
    top: int,
    identical: bool = True,
    runner: Runner = ALONE,
) -> list[Arrays]:
    """The `top` pairs of these tokens with the largest Tᵉᵉ in each head, whose queries and keys `factors` computes.

    Without `identical`, no pair of a token with itself. Each block starts from the floor that earlier blocks reached.
    """
    best = [TopPairs(top) for _ in range(n_heads)]
    blocks = -(-len(ids) // BLOCK_QUERIES)
    lock = Lock()

    @lru_cache(maxsize=1)  # blocks that still run hold those of the head before
    def bounded(head: int) -> BoundedScores:
        return BoundedScores.of(*factors(head), ids)

    def compute(number: int) -> Arrays:
        head, block = divmod(number, blocks)
        with lock:
            scores = bounded(head)
        return search_block(scores, block * BLOCK_QUERIES, top, identical, best[head].floor)

    for number, pairs in enumerate(runner.run(compute, blocks * n_heads)):
        best[number // blocks].offer(pairs)
        best[number // blocks].best()
    return [pairs.best() for pairs in best]


def search_block(scores: BoundedScores, first: int, top: int, identical: bool, floor: float) -> Arrays:
    """The best pairs of the queries from place `first`, tile by tile; scores below the floor don't matter."""
    best, query, key = TopPairs(top, floor), scores.query, scores.key
    width, size = key.panels.shape[2], len(key.ids)
    found = np.empty(TILE_QUERIES * TILE_KEYS, key.panels.dtype)
    places = np.empty((2, len(found)), np.int64)
    for row in range(first, min(first + BLOCK_QUERIES, size), TILE_QUERIES):
        rows = slice(row // product.QUERIES, (row + TILE_QUERIES) // product.QUERIES)
        for column in range(0, size, TILE_KEYS):
            lowest = best.floor - scores.slack
            if query.lengths[row] * key.lengths[column] < lowest:
                break  # the other keys are shorter still
            columns = slice(column // width, (column + TILE_KEYS) // width)
            sides = query.panels[rows], key.panels[columns], query.bounding[rows], key.bounding[columns]
            n_found = product.pairs_reaching(*sides, best.floor, lowest, found, places)
            queries, keys = places[0, :n_found] + row, places[1, :n_found] + column
            real = np.flatnonzero((queries < size) & (keys < size))
            pairs = {"score": found[real], "query": query.ids[queries[real]], "key": key.ids[keys[real]]}
            best.offer(pairs if identical else _chosen(pairs, pairs["query"] != pairs["key"]))
    return best.best()
