"""Compiled loops over token ids: bigram keys and token counts."""

import numpy as np

from detoklens.kernels.compiling import compiled


@compiled()
def write_pair_keys(ids: np.ndarray, offsets: np.ndarray, vocabulary_size: int, keys: np.ndarray, filled: int) -> int:
    """Write suffix · V + prefix of each pair inside a document into `keys` from `filled` on; how many are filled now?

    Document d is ids[offsets[d] : offsets[d + 1]]; no pair joins two documents.
    """
    for document in range(len(offsets) - 1):
        for place in range(offsets[document] + 1, offsets[document + 1]):
            keys[filled] = np.uint64(ids[place]) * np.uint64(vocabulary_size) + np.uint64(ids[place - 1])
            filled += 1
    return filled


@compiled()
def add_token_counts(ids: np.ndarray, totals: np.ndarray) -> None:
    """Add the number of times that each id occurs to `totals`."""
    for token_id in ids:
        totals[token_id] += 1
