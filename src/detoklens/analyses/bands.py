"""The mean and the band of many documents' numbers, without holding all of them.

A band that holds 95 % of documents needs only the largest and the smallest 2.5 % of each cell's numbers. How many
documents there will be is known beforehand, so just these are kept: 5 % of the whole.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float


class Band:
    """Quantiles of each cell over `documents` documents, by linear interpolation between neighbours."""

    def __init__(self, cells: tuple[int, ...], documents: int, share: float) -> None:
        self._place = (1 - share) / 2 * (documents - 1)
        self._kept = min(documents, int(self._place) + 2)
        self._documents = documents
        self._sum = np.zeros(cells)
        self._lowest = np.empty((0, *cells), np.float32)
        self._highest = np.empty((0, *cells), np.float32)

    def add(self, values: Float[np.ndarray, "document *cell"]) -> None:
        """Some more documents."""
        self._sum += values.sum(axis=0, dtype=np.float64)
        self._lowest = _smallest(np.concatenate([self._lowest, values]), self._kept)
        self._highest = -_smallest(-np.concatenate([self._highest, values]), self._kept)

    def mean(self) -> Float[np.ndarray, "*cell"]:
        return self._sum / self._documents

    def low(self) -> Float[np.ndarray, "*cell"]:
        return _between(np.sort(self._lowest, axis=0), self._place)

    def high(self) -> Float[np.ndarray, "*cell"]:
        return -_between(np.sort(-self._highest, axis=0), self._place)


def _smallest(values: Float[np.ndarray, "document *cell"], kept: int) -> Float[np.ndarray, "kept *cell"]:
    return values if len(values) <= kept else np.partition(values, kept - 1, axis=0)[:kept]


def _between(ordered: Float[np.ndarray, "kept *cell"], place: float) -> Float[np.ndarray, "*cell"]:
    """The number at a place that may lie between two neighbours."""
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    first = ordered[below].astype(np.float64)
    return first + (ordered[above] - first) * (place - below)
