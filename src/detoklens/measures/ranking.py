"""Which keys come first, and at which rank does one key stand? Larger scores first, ties by token id.

Tᵉᵉ is multiplied in one way for whoever shows or ranks it (kernels.product), so that a score has the same bits
everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from detoklens.kernels import product
from detoklens.progress import Watcher
from detoklens.scores.affinity import Affinity

BLOCK_BYTES = 32 << 20  # scores of one block of queries: 160 queries of GPT-2's vocabulary
GROUP = 64  # keys of which only the largest score is looked at first


@dataclass(frozen=True)
class HeadScores:
    """Tᵉᵉ of one head against all keys, its keys put into panels once."""

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
    """The ids of each row's `top` largest scores, best first, ties by id; all of them where there are fewer.

    The `top`-th largest of the maxima of groups of keys is a floor that at least `top` scores of the row reach, and few
    more; only those are sorted. That takes two passes over the scores, where a partition takes many.
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
    """The rank of one key in each row: 1 + the larger scores + the equal scores of smaller ids."""
    own = scores[np.arange(len(keys)), keys][:, None]
    earlier = np.arange(scores.shape[1]) < keys[:, None]
    return 1 + np.count_nonzero((scores > own) | ((scores == own) & earlier), axis=1)


def pair_ranks(
    affinity: Affinity,
    queries: Int[np.ndarray, "pair"],
    keys: Int[np.ndarray, "choice pair"],
    watch: Watcher | None = None,
) -> tuple[Int[np.ndarray, "choice head pair"], Float[np.ndarray, "choice head pair"]]:
    """The rank among all keys, and the score, of one or several choices of a key for each query, in every head."""
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
