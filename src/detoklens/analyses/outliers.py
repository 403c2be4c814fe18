"""Which positions stand out? Those whose variance differs from their neighbours', by a robust rule.

    d_j         = log v_j − median of log v over the ten nearest other positions
    deviation_j = 0.6745 · d_j / MAD,     MAD = median over all positions of |d_j|

0.6745 makes the deviation of a normal distribution one per standard deviation. A position stands out where the
deviation is beyond ±5 *and* its variance is more than a quarter away from its neighbours'. Neighbours, because
variances drift along a table of positions, and a drift is no exception; the quarter, because in a table of nearly
equal variances the smallest difference would be one.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Bool, Float

NORMAL_MAD = 0.6745
FAR_DEVIATION = 5.0
NOTABLE_RATIO = 1.25
NEIGHBOURS = 10


def deviations(variances: Float[np.ndarray, "position"]) -> Float[np.ndarray, "position"]:
    """How far each position is from its neighbours; NaN everywhere where at least half of them do not differ."""
    difference = _difference_from_neighbours(variances)
    spread = float(np.median(np.abs(difference)))
    if spread == 0:
        return np.full(len(variances), np.nan)
    return NORMAL_MAD * difference / spread


def outliers(variances: Float[np.ndarray, "position"]) -> Bool[np.ndarray, "position"]:
    """Which positions stand out; where deviations are undefined, the ratio to the neighbours alone decides."""
    notable = np.abs(_difference_from_neighbours(variances)) > math.log(NOTABLE_RATIO)
    deviation = deviations(variances)
    return notable & (np.isnan(deviation) | (np.abs(deviation) > FAR_DEVIATION))


def _difference_from_neighbours(variances: Float[np.ndarray, "position"]) -> Float[np.ndarray, "position"]:
    # A row of zeros, as an untrained position may be, is as far below the others as a float can say.
    logs = np.log(np.maximum(variances.astype(np.float64), np.finfo(np.float64).tiny))
    if len(logs) == 1:
        return np.zeros(1)
    window = min(NEIGHBOURS + 1, len(logs))
    begins = np.clip(np.arange(len(logs)) - NEIGHBOURS // 2, 0, len(logs) - window)
    nearby = [np.delete(logs[begin : begin + window], place - begin) for place, begin in enumerate(begins)]
    return logs - np.median(nearby, axis=1)
