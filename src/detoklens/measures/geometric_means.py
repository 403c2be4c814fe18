"""By how many times do numbers differ, word by word? Geometric means of ratios, with intervals over words."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from detoklens.measures.auroc.means import COVERED
from detoklens.measures.twins import FEWEST, Measured


def geometric_means(ratios: Float[np.ndarray, "row word"], resamples: int = 1000, seed: int = 0) -> Measured:
    """Each row's geometric mean and the middle 95 % of its resamples, the same for all rows; none below 30 words."""
    logarithms, n_words = np.log(ratios), ratios.shape[1]
    value = np.exp(logarithms.mean(axis=1))
    if resamples == 0 or n_words < FEWEST:
        unknown = np.full(len(ratios), np.nan)
        return Measured(value, unknown, unknown)
    random = np.random.default_rng(seed)
    samples = [logarithms[:, random.integers(n_words, size=n_words)].mean(axis=1) for _ in range(resamples)]
    low, high = np.quantile(samples, [(1 - COVERED) / 2, (1 + COVERED) / 2], axis=0)
    return Measured(value, np.exp(low), np.exp(high))
