"""Compiled loops over token ids: bigram keys and token counts."""

from __future__ import annotations

import numpy as np

from detoklens.kernels.compiling import compiled


@compiled()
def run_lengths(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct keys of a sorted array, and their counts."""
    distinct = 1 if len(keys) else 0
    for place in range(1, len(keys)):
        distinct += keys[place] != keys[place - 1]
    run_keys = np.empty(distinct, keys.dtype)
    run_counts = np.zeros(distinct, np.int64)
    row = -1
    for place in range(len(keys)):
        if place == 0 or keys[place] != keys[place - 1]:
            row += 1
            run_keys[row] = keys[place]
        run_counts[row] += 1
    return run_keys, run_counts


@compiled()
def add_runs(
    left_keys: np.ndarray, left_counts: np.ndarray, right_keys: np.ndarray, right_counts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The sum of two sorted runs: each key of either, with the counts of both added.

    Unsigned places save numba the check for negative indices: about twice as fast.
    """
    one = np.uint64(1)
    left_end, right_end = np.uint64(len(left_keys)), np.uint64(len(right_keys))
    keys = np.empty(left_end + right_end, left_keys.dtype)
    counts = np.empty(left_end + right_end, np.int64)
    left = right = row = np.uint64(0)
    while left < left_end or right < right_end:
        if right == right_end or (left < left_end and left_keys[left] < right_keys[right]):
            keys[row], counts[row] = left_keys[left], left_counts[left]
            left += one
        elif left == left_end or right_keys[right] < left_keys[left]:
            keys[row], counts[row] = right_keys[right], right_counts[right]
            right += one
        else:
            keys[row], counts[row] = left_keys[left], left_counts[left] + right_counts[right]
            left += one
            right += one
        row += one
    return keys[:row], counts[:row]


@compiled()
def write_pair_keys(ids: np.ndarray, offsets: np.ndarray, vocabulary_size: int, keys: np.ndarray, filled: int) -> int:
    """Write suffix · V + prefix of each pair inside a document into `keys` from `filled` on; return the new end.

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
