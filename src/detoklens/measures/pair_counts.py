"""How often does a key token stand right before a query token in the corpus?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int, UInt32

if TYPE_CHECKING:
    from detoklens.corpus.counts import Counts

FEW_QUERIES = 32


def pair_counts(
    counts: Counts, keys: Int[np.ndarray, "pair"], queries: Int[np.ndarray, "pair"]
) -> Int[np.ndarray, "pair"]:
    """count(key followed by query) of each pair, 0 where it never occurs."""
    found = np.zeros(len(keys), np.int64)
    if not len(keys):
        return found
    order = np.argsort(queries, kind="stable")
    distinct, starts = np.unique(queries[order], return_index=True)
    if len(distinct) > FEW_QUERIES:
        counts.bigrams  # noqa: B018  reads the whole file once instead of a part of it for every query
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
