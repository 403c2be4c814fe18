"""What shape do the position terms have? T^p against a line, T^pp against waves, the pull of their sum.

1. The line: least squares through T^p over all positions but the outliers of `outliers`, whose σ is exceptional.
2. The waves: T^pp at a query position i along the keys 0 … i, outliers again left out (see `waves`).
3. The pull: softmax of T^p + T^pp over all keys 0 … i: where its mass is, its entropy, its class (see `pull`).

σ is averaged over the vocabulary throughout.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl
from jaxtyping import Float

from detoklens.analyses import pull
from detoklens.analyses.line import best_line
from detoklens.analyses.outliers import outliers
from detoklens.analyses.position_scores import PositionScores
from detoklens.analyses.positions import chosen_queries
from detoklens.analyses.scale_summary import Average, summarise_scales
from detoklens.analyses.watching import Watcher
from detoklens.analyses.waves import Wave, is_sinusoidal, leading_waves
from detoklens.scores.layer import Layer
from detoklens.tables.shape import SHAPE, WAVES


def shape(
    layer: Layer,
    query_positions: Sequence[int] | None = None,
    average: Average = "ratio-of-mean",
    token_weights: Float[np.ndarray, "token"] | None = None,
    watch: Watcher | None = None,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Is T^p a line, is T^pp a wave, and how near does their sum pull attention? Two tables: the shape, the waves."""
    queries = chosen_queries(layer, query_positions)
    inverse = summarise_scales(layer.scales, token_weights, watch=watch).inverse(average)
    scores = PositionScores.of(layer)
    usual = np.flatnonzero(~outliers(layer.scales.position_variance))
    line = _line_columns(scores, inverse, usual)
    waves = {query: _waves_at(scores, inverse, usual, query) for query in queries}
    shapes = [_shape_at(scores, inverse, query, waves[query], usual) for query in queries]
    return pl.concat([SHAPE.frame({**line, **columns}) for columns in shapes]), WAVES.frame(_wave_columns(waves))


def _line_columns(scores: PositionScores, inverse: Float[np.ndarray, "position"], usual: np.ndarray) -> dict[str, Any]:
    line = best_line((scores.self_assertion() * inverse)[:, usual], usual)
    return {
        "slope": line.slope,
        "r_squared": line.r_squared,
        "alibi_slope": line.slope * scores.attention_scale,
        "linear": pl.Series(line.linear(), dtype=pl.Boolean),
    }


def _waves_at(
    scores: PositionScores, inverse: Float[np.ndarray, "position"], usual: np.ndarray, query: int
) -> list[list[Wave]]:
    keys = usual[usual <= query]
    curves = scores.comparison(query)[:, keys] * inverse[query] * inverse[keys]
    return leading_waves(curves, keys)


def _shape_at(
    scores: PositionScores,
    inverse: Float[np.ndarray, "position"],
    query: int,
    waves: list[list[Wave]],
    usual: np.ndarray,
) -> dict[str, Any]:
    attention = scores.attention(query, inverse)
    n_keys = int(np.count_nonzero(usual <= query))
    return {
        "head": np.arange(len(attention)),
        "query_position": np.full(len(attention), query),
        "period": pl.Series([found[0].period if found else None for found in waves], dtype=pl.Float64),
        "wave_share": pl.Series([found[0].share if found else None for found in waves], dtype=pl.Float64),
        "waves_share": pl.Series([_share(found) for found in waves], dtype=pl.Float64),
        "sinusoidal": pl.Series([is_sinusoidal(found, n_keys) for found in waves], dtype=pl.Boolean),
        **{f"last_{count}": pull.mass_on_last(attention, count) for count in pull.NEAR},
        "on_previous": pull.mass_on_previous(attention),
        "on_first": attention[:, 0],
        "entropy": pull.entropy(attention),
        "class": pull.classes(attention),
    }


def _share(waves: list[Wave]) -> float | None:
    return sum(wave.share for wave in waves) if waves else None


def _wave_columns(waves: dict[int, list[list[Wave]]]) -> dict[str, pl.Series]:
    rows = list(_wave_rows(waves))
    return {
        column.name: pl.Series([row[place] for row in rows], dtype=column.dtype)
        for place, column in enumerate(WAVES.columns)
    }


def _wave_rows(waves: dict[int, list[list[Wave]]]) -> Iterator[tuple[int, int, int, float, float, float, float]]:
    for query, heads in waves.items():
        for head, found in enumerate(heads):
            for rank, wave in enumerate(found, start=1):
                yield head, query, rank, wave.frequency, wave.period, wave.amplitude, wave.share
