"""Compiled loops over sorted runs: distinct keys in rising order, each with its count."""

import numba
import numpy as np


@numba.njit(cache=True, nogil=True)
def run_lengths(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct keys of a sorted array, and how often each stands there."""
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


@numba.njit(cache=True, nogil=True)
def add_runs(
    left_keys: np.ndarray, left_counts: np.ndarray, right_keys: np.ndarray, right_counts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The sum of two sorted runs: each key of either, with the counts of both added."""
    most = len(left_keys) + len(right_keys)
    keys = np.empty(most, left_keys.dtype)
    counts = np.empty(most, np.int64)
    left = right = row = 0
    while left < len(left_keys) and right < len(right_keys):
        left_key, right_key = left_keys[left], right_keys[right]
        takes_left, takes_right = left_key <= right_key, right_key <= left_key
        keys[row] = left_key if takes_left else right_key
        counts[row] = left_counts[left] * takes_left + right_counts[right] * takes_right
        left += takes_left
        right += takes_right
        row += 1
    rest = len(left_keys) - left
    keys[row : row + rest] = left_keys[left:]
    counts[row : row + rest] = left_counts[left:]
    row += rest
    rest = len(right_keys) - right
    keys[row : row + rest] = right_keys[right:]
    counts[row : row + rest] = right_counts[right:]
    return keys[: row + rest], counts[: row + rest]
