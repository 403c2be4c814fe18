"""By how much does ALiBi lower a score for each place of distance, head by head?

For a power of two of heads n the slopes are 2^(−8/n), 2^(−16/n), …, 2^(−8). For other numbers of heads BLOOM and MPT
fill up from the slopes of the next power of two in different orders.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float


def _powers(n_heads: int) -> Float[np.ndarray, "head"]:
    return 2.0 ** (-8 / n_heads * np.arange(1, n_heads + 1))


def bloom_slopes(n_heads: int) -> Float[np.ndarray, "head"]:
    """The slopes of the power of two below, then every other one of the power of two above."""
    below = 1 << (n_heads.bit_length() - 1)
    return np.concatenate([_powers(below), _powers(2 * below)[::2]])[:n_heads]


def mpt_slopes(n_heads: int) -> Float[np.ndarray, "head"]:
    """Of the power of two above: the second, fourth, …, then the first, third, …"""
    above = 1 << (n_heads - 1).bit_length()
    slopes = _powers(above)
    return slopes if above == n_heads else np.concatenate([slopes[1::2], slopes[::2]])[:n_heads]
