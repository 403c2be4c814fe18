"""Waves of a curve over positions, by least squares at every frequency, the strongest first.

At each frequency f of a grid the curve y is fitted by

    y_j ≈ a + b j + c cos 2πfj + d sin 2πfj

and the power at f is what c and d remove from the squared residuals of the line a + b j. This is the Lomb-Scargle
periodogram with a line instead of the mean: it needs neither evenly spaced keys nor a whole number of periods. The
leading wave is subtracted and the search repeated on the residual; shares of the power around the line add up.

The grid runs from one period in view to two positions per period, in steps of a quarter of the resolution 1/n; the best
frequency is then refined between its neighbours by golden section.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import minimize_scalar

OVERSAMPLING = 4
LEADING = 3
SINUSOIDAL_SHARE = 0.5
# With fewer keys, one wave explains half of a random curve too often; with 48 keys, once in 100,000.
FEWEST_KEYS = 48
PERIODS_IN_VIEW = 1.5  # a bend can look like one period of a wave, but not like one and a half
BLOCK_BYTES = 8 << 20
ROUNDING = 1e-12  # residuals below this share of a curve's size are rounding errors


@dataclass(frozen=True)
class Wave:
    """One wave of a curve; `share` is its share of the power around the best line."""

    frequency: float
    amplitude: float
    share: float

    @property
    def period(self) -> float:
        return 1 / self.frequency


def leading_waves(
    curves: Float[np.ndarray, "head key"], places: Int[np.ndarray, "key"], count: int = LEADING
) -> tuple[list[list[Wave]], Float[np.ndarray, "head key"]]:
    """The strongest waves of each curve, and their sum along the keys.

    Fewer waves if only rounding errors remain, none with fewer than six keys.
    """
    grid = _grid(len(places))
    if not len(grid):
        return [[] for _ in curves], np.zeros_like(curves)
    basis = _Basis(places)
    around_line = basis.without_line(curves)
    left, found = around_line.copy(), [list[Wave]() for _ in curves]
    powers, rounding = np.square(left).sum(axis=1), ROUNDING * np.abs(curves).max(axis=1)
    for _ in range(count):
        best = _best_of_grid(left, basis, grid)
        for head in np.flatnonzero(np.abs(left).max(axis=1) > rounding):
            frequency = _refined(left[head], basis, grid, int(best[head]))
            wave = basis.fitted(frequency, left[head])
            left[head] -= wave
            found[head].append(Wave(frequency, basis.amplitude(frequency, wave), float(wave @ wave / powers[head])))
    return found, around_line - left


def is_sinusoidal(waves: list[Wave], n_keys: int) -> bool | None:
    """Whether the leading wave has half of the power; None without a wave, enough keys or enough periods."""
    if not waves or n_keys < FEWEST_KEYS:
        return None
    if waves[0].share < SINUSOIDAL_SHARE:
        return False
    return True if is_in_view(waves, n_keys) else None


def is_in_view(waves: list[Wave], n_keys: int) -> bool:
    """Whether the keys hold enough periods of the leading wave to tell it from a bend."""
    return bool(waves) and waves[0].period * PERIODS_IN_VIEW <= n_keys


def shares_in_view(
    curves: Float[np.ndarray, "curve key"], places: Int[np.ndarray, "key"]
) -> Float[np.ndarray, "curve"]:
    """The share of the grid's best frequency, unrefined; 0 with fewer than 1.5 of its periods in view.

    A cheap statistic for comparing curves with their control.
    """
    grid = _grid(len(places))
    if not len(grid):
        return np.zeros(len(curves))
    basis = _Basis(places)
    left = basis.without_line(curves)
    best = _best_of_grid(left, basis, grid)
    pairs = basis.waves(grid[best])
    power, total = np.square(np.einsum("cbj,cj->cb", pairs, left)).sum(axis=1), np.square(left).sum(axis=1)
    varies = np.abs(left).max(axis=1) > ROUNDING * np.abs(curves).max(axis=1)
    shares = np.divide(power, total, out=np.zeros(len(curves)), where=varies)
    return np.where(len(places) * grid[best] >= PERIODS_IN_VIEW, shares, 0.0)


def _grid(n_keys: int) -> Float[np.ndarray, "frequency"]:
    """Frequencies from 1/n to just below 1/2, where the sine vanishes; none with fewer than six keys."""
    if n_keys < 6:
        return np.empty(0)
    return np.arange(OVERSAMPLING, OVERSAMPLING * n_keys // 2) / (OVERSAMPLING * n_keys)


class _Basis:
    """Cosines and sines over given positions, orthogonal to every line."""

    def __init__(self, places: Int[np.ndarray, "key"]) -> None:
        self.places = places - places.mean()
        length = np.sqrt(self.places @ self.places)
        self.line = np.stack([np.full(len(places), len(places) ** -0.5), self.places / length])

    def without_line(self, curves: Float[np.ndarray, "*rows key"]) -> Float[np.ndarray, "*rows key"]:
        return curves - (curves @ self.line.T) @ self.line

    def waves(self, frequencies: Float[np.ndarray, "frequency"]) -> Float[np.ndarray, "frequency both key"]:
        """For each frequency, two orthonormal vectors that span its waves, orthogonal to the line."""
        angles = 2 * np.pi * frequencies[:, None] * self.places
        cosine, sine = self.without_line(np.cos(angles)), self.without_line(np.sin(angles))
        cosine /= np.linalg.norm(cosine, axis=1, keepdims=True)
        sine -= np.einsum("fj,fj->f", sine, cosine)[:, None] * cosine
        sine /= np.linalg.norm(sine, axis=1, keepdims=True)
        return np.stack([cosine, sine], axis=1)

    def fitted(self, frequency: float, curve: Float[np.ndarray, "key"]) -> Float[np.ndarray, "key"]:
        """The least-squares wave of this frequency."""
        pair = self.waves(np.array([frequency]))[0]
        return (pair @ curve) @ pair

    def amplitude(self, frequency: float, wave: Float[np.ndarray, "key"]) -> float:
        """√(c² + d²) of a fitted wave."""
        angles = 2 * np.pi * frequency * self.places
        columns = np.stack([np.cos(angles), np.sin(angles), *self.line], axis=1)
        cosine, sine, *_ = np.linalg.lstsq(columns, wave, rcond=None)[0]
        return float(np.hypot(cosine, sine))


def _best_of_grid(
    left: Float[np.ndarray, "head key"], basis: _Basis, grid: Float[np.ndarray, "frequency"]
) -> Int[np.ndarray, "head"]:
    """For each curve, the grid index of the frequency with the most power, computed in blocks."""
    step = max(1, BLOCK_BYTES // (2 * 8 * left.shape[1]))
    blocks = [
        np.square(basis.waves(grid[begin : begin + step]) @ left.T).sum(axis=1) for begin in range(0, len(grid), step)
    ]
    return np.concatenate(blocks).argmax(axis=0)


def _refined(left: Float[np.ndarray, "key"], basis: _Basis, grid: Float[np.ndarray, "frequency"], best: int) -> float:
    """The frequency with the most power between the neighbours of the best grid frequency."""

    def lost(frequency: float) -> float:
        wave = basis.fitted(frequency, left)
        return -float(wave @ wave)

    bounds = (grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)])
    found = minimize_scalar(lost, bounds=bounds, method="bounded", options={"xatol": grid[0] * 1e-6})
    return float(found.x) if found.fun <= lost(grid[best]) else float(grid[best])
