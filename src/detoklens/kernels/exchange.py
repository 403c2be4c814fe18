"""Compiled loops that exchange keys for others of their stratum, drawn anew for every query token.

The draws follow from the seed and the query token alone, whichever tokens are asked about, in whichever block.
"""

import numpy as np

from detoklens.kernels.compiling import compiled

STEP = np.uint64(0x9E3779B97F4A7C15)  # of a Weyl sequence: 2⁶⁴ / the golden ratio
MIX, MIX_AGAIN = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
HALF_WORD = np.uint64(32)


@compiled()
def mixed(word: np.uint64) -> np.uint64:
    """64 bits each of which depends on all bits of the word (the finaliser of SplitMix64)."""
    word = (word ^ (word >> np.uint64(30))) * MIX
    word = (word ^ (word >> np.uint64(27))) * MIX_AGAIN
    return word ^ (word >> np.uint64(31))


@compiled()
def draw_stand_ins(
    columns: np.ndarray,
    n: int | np.int64,
    strata: np.ndarray,
    bounds: np.ndarray,
    seed: int | np.int64,
    token: int | np.int64,
    members: np.ndarray,
    taken: np.ndarray,
    swapped: np.ndarray,
    stand_ins: np.ndarray,
) -> None:
    """For each of n distinct columns a column of its stratum, none twice: every choice is equally likely.

    `strata[c]` is the stratum of column c, from bounds[s] to bounds[s + 1]. The first draws of a shuffle of each
    stratum's `members`, which are 0, 1, 2 … before and after; `taken`, one a stratum, is 0 before and after.
    """
    state = mixed(np.uint64(seed) * STEP + np.uint64(1)) ^ mixed(np.uint64(token) * STEP + np.uint64(2))
    for place in range(n):
        stratum = strata[columns[place]]
        first = bounds[stratum] + taken[stratum]
        state += STEP
        left = np.uint64(bounds[stratum + 1] - first)
        swapped[place] = first + np.int64(((mixed(state) >> HALF_WORD) * left) >> HALF_WORD)
        members[first], members[swapped[place]] = members[swapped[place]], members[first]
        stand_ins[place] = members[first]
        taken[stratum] += 1
    for place in range(n - 1, -1, -1):
        stratum = strata[columns[place]]
        taken[stratum] -= 1
        first = bounds[stratum] + taken[stratum]
        members[first], members[swapped[place]] = members[swapped[place]], members[first]
