"""Which keys come first, and at which rank does one key stand? Larger scores first, ties by token id."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int


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
