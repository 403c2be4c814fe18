"""Which tokens are equally frequent? Strata of the vocabulary, for controls that must not depend on frequency."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from jaxtyping import Float32, Int, Int64

FEWEST_IN_STRATUM = 16


def frequency_strata(token_counts: Int64[np.ndarray, "token"]) -> Int64[np.ndarray, "token"]:
    """The stratum of each token, 0 the rarest: never seen, once, 2 to 3 times, 4 to 7 times, and so on.

    From the top, where the comma may be alone, octaves are joined until 16 tokens are together.
    """
    octave = np.frexp(token_counts.astype(np.float64))[1]
    gathered, ends = 0, []
    for level, size in reversed(list(enumerate(np.bincount(octave)))):
        gathered += size
        if gathered >= FEWEST_IN_STRATUM:
            ends.append(level)
            gathered = 0
    return np.searchsorted(np.array(ends[-2::-1], np.int64), octave, side="right")


def columns_by_stratum(
    strata: Int64[np.ndarray, "token"],
) -> tuple[Int64[np.ndarray, "token"], Int64[np.ndarray, "stratum_and_end"]]:
    """The order of keys that puts strata side by side, and where each begins."""
    order = np.argsort(strata, kind="stable")
    return order, np.concatenate([[0], np.cumsum(np.bincount(strata))])


def permuted_within(strata: Int64[np.ndarray, "token"], seed: int) -> Int64[np.ndarray, "token"]:
    """For each token another one of the same stratum, every token once; a token alone in its stratum stays."""
    order, bounds = columns_by_stratum(strata)
    random = np.random.default_rng(seed)
    permuted = np.empty(len(strata), np.int64)
    for first, end in pairwise(bounds):
        members = order[first:end]
        permuted[members] = next_in_circle(members, random)
    return permuted


def next_in_circle(members: Int[np.ndarray, "member"], random: np.random.Generator) -> Int[np.ndarray, "member"]:
    """Another member for each: its neighbour in a circle of random order, so that nobody stays (unless alone)."""
    places = random.permutation(len(members))
    following = np.empty_like(members)
    following[places] = members[np.roll(places, -1)]
    return following


def frequency_ranks(token_counts: Int64[np.ndarray, "token"]) -> Float32[np.ndarray, "token"]:
    """Scores that order tokens as their counts do, ties included; ranks, since a float32 can't hold every count."""
    return np.unique(token_counts, return_inverse=True)[1].astype(np.float32)
