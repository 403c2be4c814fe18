"""Is position 0 a switch? How much of its jump in T^p comes from LayerNorm.

With c_j = q_b · K_p[j], what a key position says before the division, g_j = 1/σ_j, and N the next ten positions:

    jump     = c_0 g_0 − mean over j in N of c_j g_j
    by_scale = mean over j in N of (g_0 − g_j) (c_0 + c_j) / 2
    by_score = mean over j in N of (c_0 − c_j) (g_0 + g_j) / 2

The last two add up to the jump exactly, and neither c nor g is favoured: it is the mean of changing g first and of
changing c first. A large σ_0 takes a negative c_0 towards zero, so by_scale > 0: attention to the first token rises.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from jaxtyping import Float

from detoklens.analyses.position_scores import PositionScores
from detoklens.scores.layer import Layer
from detoklens.tables.variance import SWITCH

NEXT_POSITIONS = 10


def switch(layer: Layer, inverse_scales: Float[np.ndarray, "position"]) -> pl.DataFrame:
    """How much of position 0's jump in T^p is LayerNorm's? `inverse_scales` is 1/σ, averaged over the vocabulary."""
    nearby = slice(NEXT_POSITIONS + 1)
    return SWITCH.frame(_columns(PositionScores.of(layer).self_assertion()[:, nearby], inverse_scales[nearby]))


def _columns(
    scores: Float[np.ndarray, "head key"], inverse: Float[np.ndarray, "position"]
) -> dict[str, Float[np.ndarray, "head"]]:
    first, following = scores[:, 0], scores[:, 1:]
    first_inverse, inverses = inverse[0], inverse[1:]
    by_scale = _mean((first_inverse - inverses) * (first[:, None] + following) / 2)
    by_score = _mean((first[:, None] - following) * (first_inverse + inverses) / 2)
    jump = by_scale + by_score
    return {
        "head": np.arange(len(scores)),
        "first_without_norm": first,
        "next_without_norm": _mean(following),
        "first": first * first_inverse,
        "next": _mean(following * inverses),
        "jump_without_norm": first - _mean(following),
        "jump": jump,
        "by_scale": by_scale,
        "by_score": by_score,
        "scale_share": np.divide(by_scale, jump, out=np.full_like(jump, np.nan), where=jump != 0),
    }


def _mean(values: Float[np.ndarray, "head key"]) -> Float[np.ndarray, "head"]:
    return values.mean(axis=1) if values.shape[1] else np.full(len(values), np.nan)
