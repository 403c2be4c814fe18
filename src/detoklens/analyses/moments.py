"""Mean, spread and share of yes over documents, added up block by block in float64.

Sums of squares of differences from the mean are merged by Chan's formula, so that a small spread round a large mean
keeps its digits: M = M_a + M_b + (mean_b − mean_a)² n_a n_b / (n_a + n_b).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int


@dataclass(frozen=True)
class Moments:
    """For each query position: how many documents have it; and per cell their mean, squared differences, flags."""

    count: Int[np.ndarray, "query"]
    mean: Float[np.ndarray, "query *cell"]
    squares: Float[np.ndarray, "query *cell"]
    flags: Int[np.ndarray, "query *cell"]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.mean.shape

    @classmethod
    def none(cls, queries: int, cell: tuple[int, ...]) -> Moments:
        """No document yet."""
        shape = (queries, *cell)
        return cls(np.zeros(queries, np.int64), np.zeros(shape), np.zeros(shape), np.zeros(shape, np.int64))

    @classmethod
    def one(
        cls, values: Float[np.ndarray, "seen *cell"], flags: Bool[np.ndarray, "seen *cell"], shape: tuple[int, ...]
    ) -> Moments:
        """One document, which has the first so many of the query positions."""
        document = cls.none(shape[0], shape[1:])
        document.count[: len(values)] = 1
        document.mean[: len(values)] = values
        document.flags[: len(values)] = flags
        return document

    def merged(self, other: Moments) -> Moments:
        """Both sets of documents together."""
        count = self.count + other.count
        column = (slice(None), *(None,) * (self.mean.ndim - 1))
        share = (other.count / np.maximum(count, 1))[column]
        difference = other.mean - self.mean
        return Moments(
            count,
            self.mean + difference * share,
            self.squares + other.squares + difference**2 * share * self.count[column],
            self.flags + other.flags,
        )

    def standard_error(self) -> Float[np.ndarray, "query *cell"]:
        """Standard deviation of a document's value over the root of their number; NaN where there is only one."""
        column = (slice(None), *(None,) * (self.mean.ndim - 1))
        count = self.count[column].astype(np.float64)
        return np.sqrt(np.where(count > 1, self.squares, np.nan) / (np.maximum(count - 1, 1) * np.maximum(count, 1)))

    def share_flagged(self) -> Float[np.ndarray, "query *cell"]:
        return self.flags / self.count[(slice(None), *(None,) * (self.mean.ndim - 1))]

    def to_arrays(self) -> dict[str, np.ndarray]:
        return {"count": self.count, "mean": self.mean, "squares": self.squares, "flags": self.flags}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> Moments:
        return cls(arrays["count"], arrays["mean"], arrays["squares"], arrays["flags"])
