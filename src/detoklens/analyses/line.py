"""Is a curve over positions a line? Least squares, one line per head."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

LINEAR_R_SQUARED = 0.9
# A random curve of 16 points has an R² of 0.9 once in 100 million; of 4 points, once in 20.
FEWEST_POINTS = 16
ROUNDING = 1e-12  # below this share of a curve's size, its variation is rounding


@dataclass(frozen=True)
class Line:
    """The best line of each head; R² is NaN where the curve does not vary."""

    slope: Float[np.ndarray, "head"]
    r_squared: Float[np.ndarray, "head"]
    n_points: int

    def linear(self) -> list[bool | None]:
        """Whether each curve is a line; None where it does not vary, or has too few points to tell."""
        if self.n_points < FEWEST_POINTS:
            return [None] * len(self.slope)
        return [None if np.isnan(value) else bool(value >= LINEAR_R_SQUARED) for value in self.r_squared]


def best_line(curves: Float[np.ndarray, "head key"], places: Int[np.ndarray, "key"]) -> Line:
    """slope = Cov(place, value) / Var(place), R² = 1 − Var(value − line) / Var(value)."""
    if len(places) < 2:
        return Line(np.zeros(len(curves)), np.full(len(curves), np.nan), len(places))
    x = places - places.mean()
    y = curves - curves.mean(axis=1, keepdims=True)
    slope = y @ x / (x @ x)
    left = np.square(y - slope[:, None] * x).sum(axis=1)
    varies = does_vary(curves)
    total = np.square(y).sum(axis=1)
    r_squared = np.where(varies, 1 - left / np.where(varies, total, 1), np.nan)
    return Line(np.where(varies, slope, 0.0), r_squared, len(places))


def does_vary(curves: Float[np.ndarray, "head key"]) -> Bool[np.ndarray, "head"]:
    """Whether a curve is more than a constant and its rounding."""
    return np.ptp(curves, axis=1) > ROUNDING * np.abs(curves).max(axis=1)
