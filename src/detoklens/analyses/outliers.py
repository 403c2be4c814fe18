"""Which positions stand out? A robust rule on log variances.

    deviation = 0.6745 · (log v − median log v) / MAD,     MAD = median |log v − median log v|

0.6745 makes the deviation of a normal distribution one per standard deviation. A position stands out where the
deviation is beyond ±5 *and* its variance is more than a tenth away from the median. Five, because a table of positions
drifts along its length: with the usual 3.5, a stretch of drift would stand out. The tenth, because a table of nearly
equal variances would have outliers by the hundred.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Bool, Float

NORMAL_MAD = 0.6745
FAR_DEVIATION = 5.0
NOTABLE_RATIO = 1.1


def deviations(variances: Float[np.ndarray, "position"]) -> Float[np.ndarray, "position"]:
    """Modified z-scores of log variances; NaN everywhere where at least half of the variances are equal."""
    difference = _log_ratio_to_median(variances)
    spread = float(np.median(np.abs(difference)))
    if spread == 0:
        return np.full(len(variances), np.nan)
    return NORMAL_MAD * difference / spread


def outliers(variances: Float[np.ndarray, "position"]) -> Bool[np.ndarray, "position"]:
    """Which positions stand out; where at least half are equal, those more than a tenth away from them."""
    notable = np.abs(_log_ratio_to_median(variances)) > math.log(NOTABLE_RATIO)
    deviation = deviations(variances)
    return notable & (np.isnan(deviation) | (np.abs(deviation) > FAR_DEVIATION))


def _log_ratio_to_median(variances: Float[np.ndarray, "position"]) -> Float[np.ndarray, "position"]:
    # A row of zeros, as an untrained position may be, is as far below the others as a float can say.
    logs = np.log(np.maximum(variances.astype(np.float64), np.finfo(np.float64).tiny))
    return logs - np.median(logs)
