"""Where does position alone pull attention? T^p, T^pp, their sum, and its softmax."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from detoklens.analyses.position_scores import PositionScores
from detoklens.analyses.scale_summary import Average, summarise_scales
from detoklens.errors import RangeError
from detoklens.scores.layer import Layer

# The paper looks from positions 50, 500 and 1000 of GPT-2's 1024; other lengths take the same fractions.
PAPER_QUERIES, PAPER_LENGTH = (50, 500, 1000), 1024


def predicted_attention(
    layer: Layer,
    query_positions: Sequence[int],
    average: Average = "ratio-of-mean",
    token_weights: Float[np.ndarray, "token"] | None = None,
) -> list[Float[np.ndarray, "head key"]]:
    """Where would position alone send attention? softmax of T^p + T^pp, one [head, key ≤ query] for each query."""
    layer.check_positions(query_positions)
    inverse = summarise_scales(layer.scales, token_weights).inverse(average)
    scores = PositionScores.of(layer)
    return [scores.attention(position, inverse) for position in query_positions]


def chosen_queries(layer: Layer, query_positions: Sequence[int] | None) -> list[int]:
    """The query positions asked for, in order; by default about a twentieth, a half and nearly all of the length."""
    if query_positions is None:
        return sorted({layer.n_positions * position // PAPER_LENGTH for position in PAPER_QUERIES})
    if not query_positions:
        raise RangeError("no query position was given; name at least one, as 50,500")
    layer.check_positions(query_positions)
    return sorted(set(query_positions))
