"""Which keys come first, and at which rank does one key stand? Larger scores first, ties by token id."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from detoklens.analyses.watching import Watcher
from detoklens.scores.affinity import Affinity

BLOCK_BYTES = 32 << 20  # scores of one block of queries: 160 queries of GPT-2's vocabulary


def top_keys(scores: Float[np.ndarray, "key"], top: int) -> Int[np.ndarray, "rank"]:
    """The ids of the `top` largest scores, best first; all of them where there are fewer."""
    top = min(top, len(scores))
    threshold = np.partition(scores, len(scores) - top)[len(scores) - top]
    candidates = np.flatnonzero(scores >= threshold)
    # flatnonzero gives ids in order and the sort is stable, so that ties stay in the order of their ids.
    return candidates[np.argsort(-scores[candidates], kind="stable")][:top]


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
    ranks, scores = np.empty(shape, np.int64), np.empty(shape, affinity.key.dtype)
    step = max(1, BLOCK_BYTES // (affinity.vocab_size * affinity.key.itemsize))
    for head in range(affinity.n_heads):
        for begin in range(0, len(queries), step):
            block = slice(begin, begin + step)
            rows = affinity.query[head, queries[block]] @ affinity.key[head].T
            for choice, chosen in enumerate(keys[:, block]):
                ranks[choice, head, block] = rank_of(rows, chosen)
                scores[choice, head, block] = rows[np.arange(len(chosen)), chosen]
            if watch:
                watch(head * len(queries) + min(begin + step, len(queries)), affinity.n_heads * len(queries))
    return ranks, scores
