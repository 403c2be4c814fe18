"""Anomalies of positions: variance outliers, the switch at position 0, the last query position.

**Outliers** have a variance v that differs from that of their neighbours, by a robust rule:

    d_j         = log v_j − median of log v over the ten nearest other positions
    deviation_j = 0.6745 · d_j / MAD,     MAD = median over all positions of |d_j|

The factor 0.6745 turns deviations of a normal distribution into standard deviations. A position is an outlier if its
deviation is beyond ±5 *and* its variance differs from its neighbours' by more than a quarter. It is compared with its
neighbours because variances drift along a position table; the quarter keeps tiny differences in a table of nearly equal
variances from counting.

**The switch**: how much of position 0's jump in Tᵖ comes from LayerNorm? With c_j = q_b · K_p[j], the score before the
division, g_j = 1/σ_j, and N the next ten positions:

    jump     = c_0 g_0 − mean over j in N of c_j g_j
    by_scale = mean over j in N of (g_0 − g_j) (c_0 + c_j) / 2
    by_score = mean over j in N of (c_0 − c_j) (g_0 + g_j) / 2

The last two add up to the jump exactly and treat c and g alike: they average changing g first and changing c first. A
large σ_0 pulls a negative c_0 towards zero, so by_scale > 0 and attention to the first token rises.

**The last position**: is it undertrained? With r_i the row Tᵖᵖ[h, i, ·] without σ at the last five query positions,
over the keys visible to all five:

    departure of the last = ‖r_last − m‖ / ‖m‖,     m = mean of the other four rows
    usual departure       = the largest of ‖r_i − m_i‖ / ‖m_i‖,  m_i = mean of the four without r_i

The last position counts as undertrained if the others agree (their usual departure is at most 0.5) and its own is at
least 0.5 (a row of zeros has 1) and at least three times the usual one. In a random table every row departs. If the
rows before it are untrained, too (see `trained_range`), there is nothing to compare with, and the test is undefined.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from detoklens.measures.positions import PositionScores

NORMAL_MAD = 0.6745
FAR_DEVIATION = 5.0
NOTABLE_RATIO = 1.25
NEIGHBOURS = 10
NEXT_POSITIONS = 10
LAST = 5
NEAR_DEPARTURE = FAR_DEPARTURE = 0.5
TIMES_THE_USUAL = 3.0

PerHead = Float[np.ndarray, "head"]
HeadKey = Float[np.ndarray, "head key"]


def deviations(variances: Float[np.ndarray, "position"]) -> Float[np.ndarray, "position"]:
    """Each position's deviation from its neighbours; all NaN if at least half of them do not differ."""
    difference = _difference_from_neighbours(variances)
    spread = float(np.median(np.abs(difference)))
    if spread == 0:
        return np.full(len(variances), np.nan)
    return NORMAL_MAD * difference / spread


def outliers(variances: Float[np.ndarray, "position"]) -> Bool[np.ndarray, "position"]:
    """The outliers; if deviations are undefined, the ratio to the neighbours alone decides."""
    notable = np.abs(_difference_from_neighbours(variances)) > math.log(NOTABLE_RATIO)
    deviation = deviations(variances)
    return notable & (np.isnan(deviation) | (np.abs(deviation) > FAR_DEVIATION))


def _difference_from_neighbours(variances: Float[np.ndarray, "position"]) -> Float[np.ndarray, "position"]:
    # An untrained row of zeros gets the smallest variance that a float can hold.
    logs = np.log(np.maximum(variances.astype(np.float64), np.finfo(np.float64).tiny))
    if len(logs) == 1:
        return np.zeros(1)
    window = min(NEIGHBOURS + 1, len(logs))
    begins = np.clip(np.arange(len(logs)) - NEIGHBOURS // 2, 0, len(logs) - window)
    nearby = [np.delete(logs[begin : begin + window], place - begin) for place, begin in enumerate(begins)]
    return logs - np.median(nearby, axis=1)


@dataclass(frozen=True)
class Switch:
    """Tᵖ at position 0 and over the next ten, and the two parts of the jump; NaN with only one position."""

    first_without_norm: PerHead
    next_without_norm: PerHead
    first: PerHead
    next: PerHead
    jump_without_norm: PerHead
    jump: PerHead
    by_scale: PerHead
    by_score: PerHead
    scale_share: PerHead


def switch(scores: PositionScores, inverse_scales: Float[np.ndarray, "position"]) -> Switch:
    """LayerNorm's part of position 0's jump in Tᵖ; `inverse_scales` is 1/σ, averaged over the vocabulary."""
    nearby = scores.self_assertion()[:, : NEXT_POSITIONS + 1]
    first, following = nearby[:, 0], nearby[:, 1:]
    first_inverse, inverses = inverse_scales[0], inverse_scales[1 : NEXT_POSITIONS + 1]
    by_scale = _mean_over_keys((first_inverse - inverses) * (first[:, None] + following) / 2)
    by_score = _mean_over_keys((first[:, None] - following) * (first_inverse + inverses) / 2)
    jump = by_scale + by_score
    return Switch(
        first_without_norm=first,
        next_without_norm=_mean_over_keys(following),
        first=first * first_inverse,
        next=_mean_over_keys(following * inverses),
        jump_without_norm=first - _mean_over_keys(following),
        jump=jump,
        by_scale=by_scale,
        by_score=by_score,
        scale_share=np.divide(by_scale, jump, out=np.full_like(jump, np.nan), where=jump != 0),
    )


def _mean_over_keys(values: HeadKey) -> PerHead:
    return values.mean(axis=1) if values.shape[1] else np.full(len(values), np.nan)


def last_rows(scores: PositionScores) -> dict[int, HeadKey]:
    """Tᵖᵖ without LayerNorm at each of the last five query positions, over its visible keys without any window."""
    n_positions = scores.query.shape[1]
    ends = {query: query + 1 if scores.layer.is_causal else n_positions for query in range(n_positions)[-LAST:]}
    return {query: scores.compared(query, slice(end)) for query, end in ends.items()}


@dataclass(frozen=True)
class Departure:
    """The departure of the last row, and the usual one among the rows before it; NaN with too few rows."""

    size: PerHead
    usual_size: PerHead
    departure: PerHead
    usual_departure: PerHead

    def undertrained(self) -> list[bool | None]:
        """Whether the last position departs as if undertrained; None if undefined."""
        return [_verdict(one, other) for one, other in zip(self.departure, self.usual_departure, strict=True)]


def departure_of_last(rows_by_query: dict[int, HeadKey]) -> Departure:
    """The departure of the last query position, over the keys visible to all."""
    seen = min(row.shape[1] for row in rows_by_query.values())
    rows = np.stack([row[:, :seen] for row in rows_by_query.values()], axis=1)
    before, last = rows[:, :-1], rows[:, -1]
    return Departure(_size(last), _size(_mean_of_rows(before)), _departure(last, before), _usual_departure(before))


def _departure(row: HeadKey, others: Float[np.ndarray, "head query key"]) -> PerHead:
    """‖row − mean of the others‖ / ‖that mean‖; NaN without others or if their mean is zero."""
    mean = _mean_of_rows(others)
    size = _size(mean)
    return np.divide(_size(row - mean), size, out=np.full_like(size, np.nan), where=size > 0)


def _usual_departure(rows: Float[np.ndarray, "head query key"]) -> PerHead:
    departures = [_departure(rows[:, place], np.delete(rows, place, axis=1)) for place in range(rows.shape[1])]
    return np.max(departures, axis=0) if departures else np.full(len(rows), np.nan)


def _mean_of_rows(rows: Float[np.ndarray, "head query key"]) -> HeadKey:
    return rows.mean(axis=1) if rows.shape[1] else np.full((rows.shape[0], rows.shape[2]), np.nan)


def _size(row: HeadKey) -> PerHead:
    return np.sqrt(np.square(row).mean(axis=1))


def _verdict(departure: float, usual: float) -> bool | None:
    if np.isnan(departure) or np.isnan(usual):
        return None
    return bool(usual <= NEAR_DEPARTURE and departure >= max(FAR_DEPARTURE, TIMES_THE_USUAL * usual))
