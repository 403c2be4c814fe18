"""Which tokens are equally frequent? Strata of tokens by their counts, and scores that order tokens as counts do."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float32, Int64

FEWEST_IN_STRATUM = 16  # equally frequent tokens


def frequency_strata(token_counts: Int64[np.ndarray, "token"], per_octave: int = 1) -> Int64[np.ndarray, "token"]:
    """The stratum of each token, 0 the rarest: never seen, once, 2 to 3 times, 4 to 7 times, and so on.

    An octave may be cut into several parts of equal ratio. From the top, where the comma may be alone, neighbours are
    joined until 16 tokens are together, and what then remains at the bottom is joined upwards. Tokens never seen, even
    if they are few, are always a stratum of their own: nothing says that they resemble the rare ones.
    """
    levels = _levels(token_counts, per_octave)
    seen = levels > 0
    if not seen.any():
        return np.zeros(len(levels), np.int64)
    gathered, ends = 0, []
    for level, size in reversed(list(enumerate(np.bincount(levels[seen])))):
        gathered += size
        if gathered >= FEWEST_IN_STRATUM:
            ends.append(level)
            gathered = 0
    joined = np.searchsorted(np.array(ends[-2::-1], np.int64), levels, side="right")
    return np.where(seen, joined + (not seen.all()), 0)


def _levels(token_counts: Int64[np.ndarray, "token"], per_octave: int) -> Int64[np.ndarray, "token"]:
    """0 for a token never seen, else 1 more than the parts of octaves that lie wholly below its count."""
    mantissa, octave = np.frexp(token_counts.astype(np.float64))
    cuts = 2.0 ** (np.arange(1, per_octave) / per_octave - 1)
    parts = (octave.astype(np.int64) - 1) * per_octave + np.searchsorted(cuts, mantissa, side="right")
    return np.where(token_counts > 0, parts + 1, 0)


def frequency_ranks(token_counts: Int64[np.ndarray, "token"]) -> Float32[np.ndarray, "token"]:
    """Scores that order tokens as their counts do, ties included; ranks, since a float32 can't hold every count."""
    return np.unique(token_counts, return_inverse=True)[1].astype(np.float32)
