"""Which waves make up a curve over positions? Least squares at every frequency, the strongest first.

At each frequency f of a grid the curve y is fitted by

    y_j ≈ a + b j + c cos 2πfj + d sin 2πfj

and f's power is what c and d take off the squares that the line a + b j alone leaves. This is the periodogram of
Lomb and Scargle with a line in place of the mean: it needs neither evenly spaced keys nor a whole number of periods.
The leading wave is subtracted, and the search goes on in what is left; shares of the power around the line add up.

The grid begins at one period in view, ends at two positions per period, in steps of a quarter of the resolution 1/n;
the best frequency is then refined between its neighbours by golden section.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import minimize_scalar

OVERSAMPLING = 4
LEADING = 3
SINUSOIDAL_SHARE = 0.5
# With fewer keys one wave of free frequency takes half of a random curve too often: 48 keys, once in 100,000.
FEWEST_KEYS = 48
PERIODS_IN_VIEW = 1.5  # a bend can pass for one period of a wave, not for one and a half
ROUNDING = 1e-12  # below this share of a curve's size, what is left of it is rounding


@dataclass(frozen=True)
class Wave:
    """One wave of a curve; `share` is its part of the power around the curve's best line."""

    frequency: float
    amplitude: float
    share: float

    @property
    def period(self) -> float:
        return 1 / self.frequency


def leading_waves(
    curves: Float[np.ndarray, "head key"], places: Int[np.ndarray, "key"], count: int = LEADING
) -> list[list[Wave]]:
    """The strongest waves of each curve; fewer where nothing but rounding is left, none with fewer than six keys."""
    grid = _grid(len(places))
    if not len(grid):
        return [[] for _ in curves]
    basis = _Basis(places)
    table = basis.waves(grid)
    return [_waves_of(curve, basis, grid, table, count) for curve in curves]


def is_sinusoidal(waves: list[Wave], n_keys: int) -> bool | None:
    """Whether the leading wave has half of the power; None with too few keys, or too few of its periods, to tell."""
    if n_keys < FEWEST_KEYS:
        return None
    if not waves or waves[0].share < SINUSOIDAL_SHARE:
        return False
    return True if waves[0].period * PERIODS_IN_VIEW <= n_keys else None


def _grid(n_keys: int) -> Float[np.ndarray, "frequency"]:
    """Frequencies from 1/n to just below 1/2, where the sine would vanish; none with fewer than six keys."""
    if n_keys < 6:
        return np.empty(0)
    return np.arange(OVERSAMPLING, OVERSAMPLING * n_keys // 2) / (OVERSAMPLING * n_keys)


class _Basis:
    """Cosines and sines over given places, made orthogonal to every line."""

    def __init__(self, places: Int[np.ndarray, "key"]) -> None:
        self.places = places - places.mean()
        length = np.sqrt(self.places @ self.places)
        self.line = np.stack([np.full(len(places), len(places) ** -0.5), self.places / length])

    def without_line(self, curves: Float[np.ndarray, "*rows key"]) -> Float[np.ndarray, "*rows key"]:
        return curves - (curves @ self.line.T) @ self.line

    def waves(self, frequencies: Float[np.ndarray, "frequency"]) -> Float[np.ndarray, "frequency both key"]:
        """Two orthonormal vectors for each frequency that span its wave beyond the line."""
        angles = 2 * np.pi * frequencies[:, None] * self.places
        cosine, sine = self.without_line(np.cos(angles)), self.without_line(np.sin(angles))
        cosine /= np.linalg.norm(cosine, axis=1, keepdims=True)
        sine -= np.einsum("fj,fj->f", sine, cosine)[:, None] * cosine
        sine /= np.linalg.norm(sine, axis=1, keepdims=True)
        return np.stack([cosine, sine], axis=1)

    def amplitude(self, frequency: float, wave: Float[np.ndarray, "key"]) -> float:
        """The c and d of a fitted wave, as the length of (c, d)."""
        angles = 2 * np.pi * frequency * self.places
        columns = np.stack([np.cos(angles), np.sin(angles), *self.line], axis=1)
        cosine, sine, *_ = np.linalg.lstsq(columns, wave, rcond=None)[0]
        return float(np.hypot(cosine, sine))


def _waves_of(
    curve: Float[np.ndarray, "key"],
    basis: _Basis,
    grid: Float[np.ndarray, "frequency"],
    table: Float[np.ndarray, "frequency both key"],
    count: int,
) -> list[Wave]:
    left = basis.without_line(curve)
    power = float(left @ left)
    waves: list[Wave] = []
    while len(waves) < count and np.abs(left).max() > ROUNDING * np.abs(curve).max():
        wave, left = _strongest(left, basis, grid, table, power)
        waves.append(wave)
    return waves


def _strongest(
    left: Float[np.ndarray, "key"],
    basis: _Basis,
    grid: Float[np.ndarray, "frequency"],
    table: Float[np.ndarray, "frequency both key"],
    power: float,
) -> tuple[Wave, Float[np.ndarray, "key"]]:
    """The wave that takes most off the squares, and what it leaves."""
    powers = np.square(table @ left).sum(axis=1)
    frequency = _refined(left, basis, grid, int(powers.argmax()))
    pair = basis.waves(np.array([frequency]))[0]
    wave = (pair @ left) @ pair
    share = float(wave @ wave) / power
    return Wave(frequency, basis.amplitude(frequency, wave), share), left - wave


def _refined(left: Float[np.ndarray, "key"], basis: _Basis, grid: Float[np.ndarray, "frequency"], best: int) -> float:
    """The frequency of most power between the best of the grid and its neighbours."""

    def lost(frequency: float) -> float:
        return -float(np.square(basis.waves(np.array([frequency]))[0] @ left).sum())

    bounds = (grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)])
    found = minimize_scalar(lost, bounds=bounds, method="bounded", options={"xatol": grid[0] * 1e-6})
    return float(found.x) if found.fun <= lost(grid[best]) else float(grid[best])
