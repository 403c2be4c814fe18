"""Turning queries and keys by their positions: what rotary positions are.

Coordinates c and c + n of a head are one pair, turned by position · θ_c. Of two turned vectors only the difference of
their positions is left in the product: (q R_i) · (k R_j) = (q R_{i−j}) · k. Coordinates beyond the pairs stay.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from detoklens.weights.first_layer import FirstLayer


def rotated(
    layer: FirstLayer, vectors: Float[np.ndarray, "*heads row d_head"], positions: Int[np.ndarray, "row"]
) -> Float[np.ndarray, "*heads row d_head"]:
    """Each row turned by its position, as layer 0 does it to queries and keys; without rotary positions as it is."""
    if layer.rotary_frequencies is None:
        return vectors
    return _turned(vectors, np.multiply.outer(positions, layer.rotary_frequencies), layer.rotary_factor)


def rotated_by_offset(
    layer: FirstLayer, queries: Float[np.ndarray, "*rows d_head"], offset: int
) -> Float[np.ndarray, "*rows d_head"]:
    """Queries turned so that their product with keys as they are is the score at this offset i − j."""
    if layer.rotary_frequencies is None:
        return queries
    return _turned(queries, offset * layer.rotary_frequencies, layer.rotary_factor**2)


def _turned(vectors: np.ndarray, angles: np.ndarray, factor: float) -> np.ndarray:
    """Angles in float64: at position 10,000 a float32 is wrong by a thousandth."""
    n_pairs = angles.shape[-1]
    cosine, sine = ((factor * wave(angles)).astype(vectors.dtype) for wave in (np.cos, np.sin))
    first, second = vectors[..., :n_pairs], vectors[..., n_pairs : 2 * n_pairs]
    turned = np.array(vectors)
    turned[..., :n_pairs] = first * cosine - second * sine
    turned[..., n_pairs : 2 * n_pairs] = second * cosine + first * sine
    return turned
