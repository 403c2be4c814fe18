"""What does σ of a token at a position need? Cov(e, p) of all of them as a product of two thin factors.

    σ² = Var(e) + Var(p) + 2 Cov(e, p) + ε,    Cov(e_t, p_i) ≈ Σ_r token[t, r] · position[i, r]

The factors are the leading singular vectors of the covariances at the positions of a text, as many as it takes: the
rank is the smallest whose largest relative error of σ, over all tokens and those positions, is below the tolerance.
Smooth position tables need few, others one for each position of a text.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from detoklens.explorer.arrays import halved, multiplier_of
from detoklens.weights.scale import ScaleTable

TOLERANCE = 1e-4  # of σ: a score of 40 is then off by less than 0.01


@dataclass(frozen=True)
class ThinCovariance:
    """Cov(e, p) as position · tokenᵀ, and the largest relative error of σ with it, the token's side being halved."""

    token: Float[np.ndarray, "token rank"]
    position: Float[np.ndarray, "position rank"]
    error: float


def thin_covariance(scales: ScaleTable, length: int) -> ThinCovariance:
    """The covariances of all tokens with the first positions."""
    covariance = scales.covariance(slice(0, length))
    variance = np.maximum(scales.of_positions(slice(0, length)) ** 2, np.finfo(covariance.dtype).tiny)
    positions = _leading(covariance)
    tokens = (covariance.T @ positions).astype(np.float32)
    rank = _smallest_rank(covariance, variance, positions, tokens)
    token, position = tokens[:, :rank], positions[:, :rank]
    multiplier = multiplier_of(token)
    stored = halved(token, multiplier).astype(np.float32) * np.float32(multiplier)
    return ThinCovariance(token, position, _scale_error(covariance, variance, position @ stored.T))


def _leading(covariance: Float[np.ndarray, "position token"]) -> Float[np.ndarray, "position position"]:
    """The left singular vectors, the strongest first."""
    wide = covariance.astype(np.float64)
    _, vectors = np.linalg.eigh(wide @ wide.T)
    return np.ascontiguousarray(vectors[:, ::-1], np.float32)


def _smallest_rank(
    covariance: Float[np.ndarray, "position token"],
    variance: Float[np.ndarray, "position token"],
    positions: Float[np.ndarray, "position position"],
    tokens: Float[np.ndarray, "token position"],
) -> int:
    """By halving: more vectors are never worse by more than rounding."""
    low, high = 0, positions.shape[1]
    while low < high:
        middle = (low + high) // 2
        error = _scale_error(covariance, variance, positions[:, :middle] @ tokens[:, :middle].T)
        low, high = (low, middle) if error < TOLERANCE else (middle + 1, high)
    return low


def _scale_error(
    covariance: Float[np.ndarray, "position token"],
    variance: Float[np.ndarray, "position token"],
    found: Float[np.ndarray, "position token"],
) -> float:
    """The largest relative error of σ, where σ² is what `variance` says: that of Cov over σ²."""
    found -= covariance
    found /= variance
    return float(max(found.max(), -found.min()))
