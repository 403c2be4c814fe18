"""Rank keys and pairs by Tᵉᵉ. The largest pairs are found tile by tile, never with V × V scores in memory.

1. Blocks of queries are scored against all keys of the head.
2. A block's product consists of tiles of 504 × 1024 scores, which stay in cache (2 MB).
3. Only rows whose maximum reaches the floor, the score of the worst pair kept so far, are examined. Of V² pairs about
   K ln(V²/K) are ever touched one by one.

Larger scores come first; ties are ordered by query id, then key id. A score has the same bits in any tile, block and
thread.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int, UInt32

from detoklens.kernels import product
from detoklens.parallel import Arrays, Runner
from detoklens.progress import Watcher
from detoklens.scores.affinity import Affinity

if TYPE_CHECKING:
    from detoklens.corpus.counts import Counts


FEW_QUERIES = 32


def pair_counts(
    counts: Counts, keys: Int[np.ndarray, "pair"], queries: Int[np.ndarray, "pair"]
) -> Int[np.ndarray, "pair"]:
    """count(key followed by query) of each pair."""
    found = np.zeros(len(keys), np.int64)
    if not len(keys):
        return found
    order = np.argsort(queries, kind="stable")
    distinct, starts = np.unique(queries[order], return_index=True)
    if len(distinct) > FEW_QUERIES:
        counts.bigrams  # noqa: B018  read the whole file once instead of a part per query
    for query, places in zip(distinct, np.split(order, starts[1:]), strict=True):
        prefixes, occurrences = counts.predecessors(int(query))
        found[places] = _looked_up(prefixes, occurrences, keys[places].astype(prefixes.dtype))
    return found


def _looked_up(
    prefixes: UInt32[np.ndarray, "predecessor"],
    occurrences: Int[np.ndarray, "predecessor"],
    keys: UInt32[np.ndarray, "pair"],
) -> Int[np.ndarray, "pair"]:
    if not len(prefixes):
        return np.zeros(len(keys), np.int64)
    places = np.minimum(np.searchsorted(prefixes, keys), len(prefixes) - 1)
    return np.where(prefixes[places] == keys, occurrences[places], 0)


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
    largest = scores[:, : groups * size].reshape(len(scores), groups, size).max(axis=2)
    floor = np.partition(largest, groups - top, axis=1)[:, groups - top, None]
    rows, keys = np.nonzero(scores >= floor)
    order = np.lexsort((keys, -scores[rows, keys], rows))
    first = np.searchsorted(rows, np.arange(len(scores)))
    return keys[order][first[:, None] + np.arange(top)]


def rank_of(scores: Float[np.ndarray, "query key"], keys: Int[np.ndarray, "query"]) -> Int[np.ndarray, "query"]:
    """The rank of one key in each row: 1 + larger scores + equal scores with smaller ids."""
    own = scores[np.arange(len(keys)), keys][:, None]
    earlier = np.arange(scores.shape[1]) < keys[:, None]
    return 1 + np.count_nonzero((scores > own) | ((scores == own) & earlier), axis=1)


def pair_ranks(
    affinity: Affinity,
    queries: Int[np.ndarray, "pair"],
    keys: Int[np.ndarray, "choice pair"],
    watch: Watcher | None = None,
) -> tuple[Int[np.ndarray, "choice head pair"], Float[np.ndarray, "choice head pair"]]:
    """The rank among all keys and the score of one or several keys per query, in each head."""
    shape = (len(keys), affinity.n_heads, len(queries))
    ranks, scores = np.empty(shape, np.int64), np.empty(shape, affinity.shared_key.dtype)
    step = max(1, BLOCK_BYTES // (affinity.vocab_size * affinity.shared_key.itemsize))
    for head in range(affinity.n_heads):
        scorer = HeadScores.of(affinity.key_of(head))
        for begin in range(0, len(queries), step):
            block = slice(begin, begin + step)
            rows = scorer.rows(affinity.query[head, queries[block]])
            for choice, chosen in enumerate(keys[:, block]):
                ranks[choice, head, block] = rank_of(rows, chosen)
                scores[choice, head, block] = rows[np.arange(len(chosen)), chosen]
            if watch:
                watch(head * len(queries) + min(begin + step, len(queries)), affinity.n_heads * len(queries))
    return ranks, scores


QUERY_PANELS, KEY_PANELS = 84, 64
"""Panels per tile: 504 × 1024 scores in float32."""

BLOCK_QUERIES = 16 * QUERY_PANELS * product.QUERIES
ALONE = Runner()


@dataclass(frozen=True)
class PairBlock:
    """Some queries of a head against all its keys; scores below the floor don't matter."""

    query: Float[np.ndarray, "query d_head"]
    key: Float[np.ndarray, "token d_head"]
    first_query: int
    top: int
    identical: bool
    floor: float


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
            least = np.partition(pairs["score"], -self.top)[-self.top]
            pairs = _chosen(pairs, np.flatnonzero(pairs["score"] >= least))
            self.floor = float(least)
        pairs = _chosen(pairs, np.lexsort((pairs["key"], pairs["query"], -pairs["score"]))[: self.top])
        self._waiting, self._n_waiting = [pairs], len(pairs["score"])
        return pairs


def largest_pairs(affinity: Affinity, top: int, identical: bool = True, runner: Runner = ALONE) -> list[Arrays]:
    """The `top` pairs with the largest Tᵉᵉ of each head; without `identical`, no pair of a token with itself.

    Each block starts from the floor that earlier blocks have reached.
    """
    best = [TopPairs(top) for _ in range(affinity.n_heads)]
    blocks = -(-affinity.vocab_size // BLOCK_QUERIES)

    def compute(number: int) -> Arrays:
        head, first = number // blocks, number % blocks * BLOCK_QUERIES
        query = affinity.query[head, first : first + BLOCK_QUERIES]
        return search_block(PairBlock(query, affinity.key_of(head), first, top, identical, best[head].floor))

    for number, pairs in enumerate(runner.run(compute, blocks * affinity.n_heads)):
        best[number // blocks].offer(pairs)
        best[number // blocks].best()
    return [pairs.best() for pairs in best]


def search_block(block: PairBlock) -> Arrays:
    """The best pairs of one block of queries."""
    best = TopPairs(block.top, block.floor)
    queries, keys = product.query_panels(block.query), product.key_panels(block.key)
    n_queries, n_keys = product.QUERIES, keys.shape[2]
    buffer = np.empty(QUERY_PANELS * n_queries * KEY_PANELS * n_keys, keys.dtype)
    for row in range(0, len(queries), QUERY_PANELS):
        for column in range(0, len(keys), KEY_PANELS):
            tile = product.multiply(queries[row : row + QUERY_PANELS], keys[column : column + KEY_PANELS], buffer)
            real = tile[: len(block.query) - row * n_queries, : len(block.key) - column * n_keys]
            found = _reaching(real, best.floor, block.first_query + row * n_queries, column * n_keys)
            best.offer(found if block.identical else _chosen(found, found["query"] != found["key"]))
    return best.best()


def _reaching(scores: Float[np.ndarray, "query key"], floor: float, first_query: int, first_key: int) -> Arrays:
    """The pairs of a tile whose score reaches the floor."""
    rows = np.flatnonzero(scores.max(axis=1) >= floor)
    within, keys = np.divmod(np.flatnonzero(scores[rows] >= floor), scores.shape[1])
    queries = rows[within]
    return {"score": scores[queries, keys], "query": queries + first_query, "key": keys + first_key}


def _chosen(pairs: Arrays, which: Int[np.ndarray, "some"] | np.ndarray) -> Arrays:
    return {name: column[which] for name, column in pairs.items()}
