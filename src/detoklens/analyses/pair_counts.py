"""How often does a key token stand right before a query token in the corpus?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int

if TYPE_CHECKING:
    from detoklens.corpus.counts import Counts


def pair_counts(
    counts: Counts, keys: Int[np.ndarray, "pair"], queries: Int[np.ndarray, "pair"]
) -> Int[np.ndarray, "pair"]:
    """count(key followed by query) of each pair, 0 where it never occurs."""
    found = np.zeros(len(keys), np.int64)
    order = np.argsort(queries, kind="stable")
    distinct, starts = np.unique(queries[order], return_index=True)
    for query, places in zip(distinct, np.split(order, starts[1:]), strict=True):
        found[places] = _counts_before(counts, int(query), keys[places])
    return found


def _counts_before(counts: Counts, query: int, keys: Int[np.ndarray, "pair"]) -> Int[np.ndarray, "pair"]:
    row = slice(counts.bigrams.indptr[query], counts.bigrams.indptr[query + 1])
    prefixes, occurrences = counts.bigrams.prefixes[row], counts.bigrams.counts[row]
    if not len(prefixes):
        return np.zeros(len(keys), np.int64)
    places = np.minimum(np.searchsorted(prefixes, keys), len(prefixes) - 1)
    return np.where(prefixes[places] == keys, occurrences[places], 0)
