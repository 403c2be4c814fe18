"""Which pairs of a head have the largest Tᵉᵉ over all queries and keys? One tile of scores in memory, never V × V.

1. Queries come in blocks, each against all keys of the head.
2. A block's product is made of tiles of 504 × 1024 that stay in cache (2 MB).
3. Of a tile only the rows whose maximum reaches the floor are looked at, the floor being the smallest score that can
   still matter: that of the worst pair kept so far. Of V² pairs about K ln(V²/K) are ever touched one by one.

Larger scores come first, equal ones by query id, then key id. A score has the same bits in whichever tile, block
and thread it is computed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int

from detoklens.kernels import product
from detoklens.parallel import Arrays, Runner
from detoklens.scores.affinity import Affinity

QUERY_PANELS, KEY_PANELS = 84, 64
"""The panels of a tile: 504 × 1024 scores in float32."""

BLOCK_QUERIES = 16 * QUERY_PANELS * product.QUERIES
ALONE = Runner()


@dataclass(frozen=True)
class PairBlock:
    """Some queries of a head against all its keys; only scores that reach the floor can matter."""

    query: Float[np.ndarray, "query d_head"]
    key: Float[np.ndarray, "token d_head"]
    first_query: int
    top: int
    identical: bool
    floor: float


@dataclass
class TopPairs:
    """The best pairs so far; pairs that are offered wait until they are many, then the best are kept."""

    top: int
    floor: float = -np.inf
    _waiting: list[Arrays] = field(default_factory=list)
    _n_waiting: int = 0

    def offer(self, pairs: Arrays) -> None:
        """Pairs with columns score, query, key, all of which reach the floor."""
        self._waiting.append(pairs)
        self._n_waiting += len(pairs["score"])
        if self._n_waiting > 2 * self.top:
            self.best()

    def best(self) -> Arrays:
        """The best `top` of all that was offered, best first; the floor rises to the last of them."""
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
    """The `top` pairs with the largest Tᵉᵉ of every head; without `identical`, no token with itself.

    Each block starts from the floor that earlier ones have reached.
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
    room = np.empty(QUERY_PANELS * n_queries * KEY_PANELS * n_keys, keys.dtype)
    for row in range(0, len(queries), QUERY_PANELS):
        for column in range(0, len(keys), KEY_PANELS):
            tile = product.multiply(queries[row : row + QUERY_PANELS], keys[column : column + KEY_PANELS], room)
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
