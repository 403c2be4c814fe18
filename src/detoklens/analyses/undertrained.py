"""Is the last position undertrained? T^pp without LayerNorm at the last five query positions, compared.

With r_i the row T^pp[h, i, ·] without σ, over the keys that all five queries see:

    departure of the last = ‖r_last − m‖ / ‖m‖,     m = mean of the other four rows
    usual departure       = the largest of ‖r_i − m_i‖ / ‖m_i‖,  m_i = mean of the four without r_i

The last position counts as undertrained where the others agree (their usual departure is at most 0.5) and its own is
at least 0.5 (a row of zeros has 1) and at least three times the usual one. In a random table every row departs.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from jaxtyping import Float

from detoklens.analyses.position_scores import PositionScores
from detoklens.scores.layer import Layer
from detoklens.tables.variance import LAST_QUERIES, UNDERTRAINED

LAST = 5
NEAR_DEPARTURE = FAR_DEPARTURE = 0.5
TIMES_THE_USUAL = 3.0


def last_queries(layer: Layer) -> pl.DataFrame:
    """What do the last query positions look for, LayerNorm left out?"""
    scores = PositionScores.of(layer)
    return pl.concat([_query_table(scores.comparison(query), query) for query in _last(layer)])


def undertrained(layer: Layer) -> pl.DataFrame:
    """Does the last query position depart from those before it? Null where there are too few of them to say."""
    scores, queries = PositionScores.of(layer), _last(layer)
    seen = slice(queries[0] + 1)
    rows = np.stack([scores.comparison(query)[:, seen] for query in queries], axis=1)
    before, last = rows[:, :-1], rows[:, -1]
    departure, usual = _departure(last, before), _usual_departure(before)
    return UNDERTRAINED.frame(
        {
            "head": np.arange(len(rows)),
            "size": _size(last),
            "usual_size": _size(_mean(before)),
            "departure": departure,
            "usual_departure": usual,
            "undertrained": pl.Series(
                [_verdict(one, other) for one, other in zip(departure, usual, strict=True)], dtype=pl.Boolean
            ),
        }
    )


def _last(layer: Layer) -> range:
    return range(max(0, layer.n_positions - LAST), layer.n_positions)


def _query_table(values: Float[np.ndarray, "head key"], query: int) -> pl.DataFrame:
    n_heads, n_keys = values.shape
    return LAST_QUERIES.frame(
        {
            "head": np.repeat(np.arange(n_heads), n_keys),
            "query_position": np.full(values.size, query),
            "key_position": np.tile(np.arange(n_keys), n_heads),
            "comparison": values.ravel(),
        }
    )


def _departure(
    row: Float[np.ndarray, "head key"], others: Float[np.ndarray, "head query key"]
) -> Float[np.ndarray, "head"]:
    """‖row − mean of the others‖ / ‖that mean‖; NaN where there are none, or where their mean is zero."""
    mean = _mean(others)
    size = _size(mean)
    return np.divide(_size(row - mean), size, out=np.full_like(size, np.nan), where=size > 0)


def _usual_departure(rows: Float[np.ndarray, "head query key"]) -> Float[np.ndarray, "head"]:
    departures = [_departure(rows[:, place], np.delete(rows, place, axis=1)) for place in range(rows.shape[1])]
    return np.max(departures, axis=0) if departures else np.full(len(rows), np.nan)


def _mean(rows: Float[np.ndarray, "head query key"]) -> Float[np.ndarray, "head key"]:
    return rows.mean(axis=1) if rows.shape[1] else np.full((rows.shape[0], rows.shape[2]), np.nan)


def _size(row: Float[np.ndarray, "head key"]) -> Float[np.ndarray, "head"]:
    return np.sqrt(np.square(row).mean(axis=1))


def _verdict(departure: float, usual: float) -> bool | None:
    if np.isnan(departure) or np.isnan(usual):
        return None
    return bool(usual <= NEAR_DEPARTURE and departure >= max(FAR_DEPARTURE, TIMES_THE_USUAL * usual))
