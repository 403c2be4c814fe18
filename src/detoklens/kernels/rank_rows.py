"""At which rank does one column of each row stand? One pass over the scores, where comparing arrays takes four."""

from __future__ import annotations

import numpy as np

from detoklens.kernels.compiling import compiled


@compiled()
def rank_rows(scores: np.ndarray, columns: np.ndarray, ranks: np.ndarray) -> None:
    """1 + the larger scores of the row + the equal ones in columns before it."""
    for row in range(len(columns)):
        place = columns[row]
        own = scores[row, place]
        above = 1
        for column in range(place):
            above += scores[row, column] >= own
        for column in range(place + 1, scores.shape[1]):
            above += scores[row, column] > own
        ranks[row] = above
