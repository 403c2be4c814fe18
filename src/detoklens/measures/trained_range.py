"""Which rows of the position table were trained? Rows that no text ever reached are still as they were drawn.

A model trained on texts shorter than its table leaves the rows beyond them as initialised: independent of each other,
all of one variance, that of the config's `initializer_range`, or less where weight decay took some. Training makes
neighbours alike. So with d features, and r_i the correlation over features of the rows i − 1 and i,

1. the range ends behind the last row whose r_i is beyond chance: more than 5/√d, once in two million pairs;
2. rows that follow and whose variance is not that of the rest (log ratio beyond 5 √(2/d)) are trained, too;
3. the rest counts as untrained only if its variances are as even as drawn ones' (whose logarithms spread by √(2/d); at
   most 1.5 times that, or 1 + 5/√(2(n − 1)) times where so few rows n leave their spread uncertain), not above the
   config's (by a quarter at most), and if before it most neighbours are alike.

Either side has at least 16 rows, else nothing is cut: an early checkpoint, whose rows are all as drawn, has no range.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from detoklens.scores.layer import Layer

BEYOND_CHANCE = 5.0  # standard deviations
EVEN_TIMES = 1.5
INITIAL_TIMES = 1.25
FEWEST_ROWS = 16
MOST = 0.5
RANGE_NAMES = ("initializer_range", "init_std")  # as GPT-2's config and as Whisper's call it

PerPosition = Float[np.ndarray, "position"]


@dataclass(frozen=True)
class TrainedRange:
    """How many rows from the first are trained, and what tells them from the rest; NaN where there is no rest."""

    positions: int
    trained: int
    trained_variance: float
    untrained_variance: float
    initial_variance: float
    trained_correlation: float
    untrained_correlation: float

    @property
    def is_whole(self) -> bool:
        return self.trained == self.positions


def trained_range(layer: Layer) -> TrainedRange:
    """Which positions of a layer were trained, as far as its table and its config can tell?"""
    return range_of_table(layer.weights.position_embeddings, _initial_deviation(layer))


def range_of_table(
    table: Float[np.ndarray, "position d_model"], initial_deviation: float | None = None
) -> TrainedRange:
    """The same of plain rows and the standard deviation that they were drawn with, if that is known."""
    variances, alike = table.var(axis=1, dtype=np.float64), neighbour_correlations(table)
    initial = math.nan if initial_deviation is None else initial_deviation**2
    trained = _first_untrained(variances, alike, table.shape[1], initial)
    return TrainedRange(
        positions=len(table),
        trained=trained,
        trained_variance=_median(variances[:trained]),
        untrained_variance=_median(variances[trained:]),
        initial_variance=initial,
        trained_correlation=_median(alike[1:trained]),
        untrained_correlation=_median(alike[trained + 1 :]),
    )


def neighbour_correlations(table: Float[np.ndarray, "position d_model"]) -> PerPosition:
    """Each row's correlation with the row before it; 0 for the first, and where a row does not vary."""
    rows = table.astype(np.float64)
    rows -= rows.mean(axis=1, keepdims=True)
    sizes = np.linalg.norm(rows, axis=1)
    products, norms = np.einsum("pd,pd->p", rows[1:], rows[:-1]), sizes[1:] * sizes[:-1]
    return np.concatenate([[0.0], np.divide(products, norms, out=np.zeros_like(norms), where=norms > 0)])


def _first_untrained(variances: PerPosition, alike: PerPosition, features: int, initial: float) -> int:
    """The first row of the untrained rest; the number of rows where there is none."""
    beyond = alike > BEYOND_CHANCE / math.sqrt(features)
    after = int(np.flatnonzero(beyond).max(initial=-1)) + 1
    if after == 0 or len(alike) - after < FEWEST_ROWS:
        return len(alike)
    first = after + _odd_rows(np.log(np.maximum(variances[after:], np.finfo(np.float64).tiny)), features)
    is_rest = (
        min(first, len(alike) - first) >= FEWEST_ROWS
        and _is_as_drawn(variances[first:], features, initial)
        and float(beyond[1:first].mean()) > MOST
    )
    return first if is_rest else len(alike)


def _odd_rows(logs: PerPosition, features: int) -> int:
    """How many rows at the beginning have another variance than most."""
    odd: Bool[np.ndarray, "position"] = np.abs(logs - np.median(logs)) > BEYOND_CHANCE * math.sqrt(2 / features)
    return len(odd) if odd.all() else int(np.argmin(odd))


def _is_as_drawn(variances: PerPosition, features: int, initial: float) -> bool:
    logs = np.log(np.maximum(variances, np.finfo(np.float64).tiny))
    times = max(EVEN_TIMES, 1 + BEYOND_CHANCE / math.sqrt(2 * (len(logs) - 1)))
    is_even = float(logs.std(ddof=1)) <= times * math.sqrt(2 / features)
    return is_even and not _median(variances) > INITIAL_TIMES * initial  # an unknown one, NaN, refuses nothing


def _initial_deviation(layer: Layer) -> float | None:
    """What the config says that weights were drawn with; None where it says nothing, or no positive number."""
    config = layer.checkpoint.config
    found = next((config[name] for name in RANGE_NAMES if config.get(name) is not None), None)
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 < found < math.inf:
        return None
    return float(found)


def _median(values: PerPosition) -> float:
    return float(np.median(values)) if len(values) else math.nan
