"""By how much does ALiBi lower a score for each place of distance, head by head?

For a power of two of heads n the slopes are 2^(−8/n), 2^(−16/n), …, 2^(−8). For other numbers of heads they are those
of the power of two below, filled up with every other one of the power of two above: BLOOM and MPT write that in
different ways, and it is the same.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float


def _powers(n_heads: int) -> Float[np.ndarray, "head"]:
    return 2.0 ** (-8 / n_heads * np.arange(1, n_heads + 1))


def alibi_slopes(n_heads: int) -> Float[np.ndarray, "head"]:
    """The slopes of the power of two below, then every other one of the power of two above."""
    below = 1 << (n_heads.bit_length() - 1)
    return np.concatenate([_powers(below), _powers(2 * below)[::2]])[:n_heads]
