"""How large is σ at each position, over the vocabulary? Means, quantiles, extremes, in one pass over blocks.

Every position term is a fixed number divided by σ of the key (and of the query), so what is needed of the vocabulary
is how σ is distributed at each position, never one value per head and token:

    Tᵖ[j] = c / σ_j,  Tᵖᵖ[i, j] = c / (σ_i σ_j):  the value falls steadily in |c| as σ grows

A quantile here is the smallest σ with at least that share of the vocabulary at or below it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Literal

import numpy as np
from jaxtyping import Float

from detoklens.errors import RangeError
from detoklens.progress import Watcher
from detoklens.weights.scale import ScaleTable

Average = Literal["ratio-of-mean", "mean-of-ratio"]


@dataclass(frozen=True)
class ScaleSummary:
    """σ at each position over the vocabulary.

    `low` to `high` holds at least `coverage` of the tokens. `pair_low` to `pair_high` is wider: it holds the square
    root of that, so that of two independent tokens both lie inside for at least `coverage` of all pairs.
    """

    mean: Float[np.ndarray, "position"]
    mean_inverse: Float[np.ndarray, "position"]
    smallest: Float[np.ndarray, "position"]
    pair_low: Float[np.ndarray, "position"]
    low: Float[np.ndarray, "position"]
    high: Float[np.ndarray, "position"]
    pair_high: Float[np.ndarray, "position"]
    largest: Float[np.ndarray, "position"]

    def inverse(self, average: Average) -> Float[np.ndarray, "position"]:
        """What a score is multiplied by: 1 / mean σ ("ratio-of-mean"), or the mean of 1/σ ("mean-of-ratio")."""
        return 1 / self.mean if average == "ratio-of-mean" else self.mean_inverse


def summarise_scales(
    scales: ScaleTable,
    token_weights: Float[np.ndarray, "token"] | None = None,
    coverage: float = 0.95,
    watch: Watcher | None = None,
) -> ScaleSummary:
    """σ at every position, the vocabulary taken evenly or by weight (a token of weight 0 is not there)."""
    if not 0 < coverage < 1:
        raise RangeError(f"a band of {coverage} was asked for; give a share of the vocabulary between 0 and 1, as 0.95")
    shares = None if token_weights is None else _shares(token_weights, len(scales.token_variance))
    summarise = _evenly if shares is None else _by_weight(shares)
    levels, total = _levels(coverage), len(scales.position_variance)
    parts: list[ScaleSummary] = []
    for positions, block in scales.position_blocks():
        parts.append(summarise(block, levels))
        if watch is not None:
            watch(positions.stop, total)
    return ScaleSummary(
        *(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(ScaleSummary))
    )


def _levels(coverage: float) -> tuple[float, ...]:
    pair_coverage = math.sqrt(coverage)
    return tuple(
        (1 + side * share) / 2
        for side, share in ((-1, pair_coverage), (-1, coverage), (1, coverage), (1, pair_coverage))
    )


def _shares(weights: Float[np.ndarray, "token"], vocab_size: int) -> Float[np.ndarray, "token"]:
    if weights.shape != (vocab_size,):
        raise RangeError(f"{len(weights)} token weights were given for {vocab_size} tokens; give one for each token")
    total = float(weights.sum(dtype=np.float64))
    if not (np.isfinite(total) and total > 0 and float(weights.min()) >= 0):
        raise RangeError("token weights must be finite, none below 0 and not all 0; give counts or frequencies")
    return weights.astype(np.float64) / total


def _evenly(block: Float[np.ndarray, "position token"], levels: tuple[float, ...]) -> ScaleSummary:
    n_tokens = block.shape[1]
    mean = block.mean(axis=1, dtype=np.float64)
    mean_inverse = (1 / block).mean(axis=1, dtype=np.float64)
    # The rounding guards levels that are whole in decimals but not in binary: 0.95 × 100 must give rank 95.
    ranks = [max(0, math.ceil(round(level * n_tokens, 9)) - 1) for level in levels]
    block.sort(axis=1)  # of float32, a third of the time of a partition at six ranks
    chosen = block[:, [0, *ranks, n_tokens - 1]].astype(np.float64)
    return ScaleSummary(mean, mean_inverse, *chosen.T)


def _by_weight(
    shares: Float[np.ndarray, "token"],
) -> Callable[[Float[np.ndarray, "position token"], tuple[float, ...]], ScaleSummary]:
    seen = np.flatnonzero(shares)
    seen_shares = shares[seen]

    def summarise(block: Float[np.ndarray, "position token"], levels: tuple[float, ...]) -> ScaleSummary:
        rows = [_weighted_row(row[seen], seen_shares, levels) for row in block]
        return ScaleSummary(*np.array(rows).T)

    return summarise


def _weighted_row(
    scales: Float[np.ndarray, "token"], shares: Float[np.ndarray, "token"], levels: tuple[float, ...]
) -> list[float]:
    """One position's summary; row by row, since a row stays in the cache and a block does not."""
    order = np.argsort(scales)
    reached = np.cumsum(shares[order])
    # The same guard against binary fractions as above.
    ranks = np.searchsorted(reached, np.array(levels) * reached[-1] - 1e-12)
    means = [float(np.average(values, weights=shares)) for values in (scales, 1 / scales)]
    return [*means, *(float(scales[order[rank]]) for rank in (0, *ranks, -1))]
