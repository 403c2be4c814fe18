"""Tables of `Positions` and their display: curves along the keys, or by distance from the query."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from detoklens.tables.rendering import sparkline
from detoklens.tables.schema import HEAD, Column, Schema

if TYPE_CHECKING:
    from detoklens.measures.positions import Curve, OffsetCurve


DRAWN_PLACES = 22  # width of a sparkline: the row then fits 80 characters, even with six-digit positions
SHOWN_DIGITS = 3

POSITIONS = Schema(
    "positions",
    "Position terms along the keys",
    (
        HEAD,
        Column(
            "quantity",
            "String",
            "p, pp, their sum (p+pp), or attention: softmax of the sum over the visible keys",
        ),
        Column("query_position", "Int32", "position of the query, from 0; null for p, which does not depend on it"),
        Column("key_position", "Int32", "position of the key, at most the query's own in causal models"),
        Column("layer_norm", "Boolean", "whether the values are divided by σ"),
        Column("mean", "Float64", "value with σ averaged over the vocabulary, see the option `average`", defined=True),
        Column(
            "low",
            "Float64",
            "lower end of the band of most tokens (pp, p+pp: pairs of tokens); null for attention",
        ),
        Column("high", "Float64", "upper end of that band"),
        Column(
            "at_smallest_scale",
            "Float64",
            "value with the vocabulary's smallest σ, at the key or as the option `extremes` says",
        ),
        Column("at_largest_scale", "Float64", "value with the vocabulary's largest σ, likewise"),
    ),
)


POSITIONS_BY_OFFSET = Schema(
    "positions_by_offset",
    "Position kernel by offset",
    (
        HEAD,
        Column("quantity", "String", "p: the position kernel; attention: its softmax over the visible keys"),
        Column("query_position", "Int32", "position of the query, from 0; null for the kernel"),
        Column("offset", "Int32", "query position − key position; negative for keys after the query"),
        Column("value", "Float64", "the kernel before multiplication by the attention scale, or the attention"),
    ),
)


def curve_table(curve: Curve) -> pl.DataFrame:
    n_heads, n_keys = curve.mean.shape
    rows = n_heads * n_keys
    return POSITIONS.frame(
        {
            "head": np.repeat(np.arange(n_heads), n_keys),
            "quantity": [curve.quantity] * rows,
            "query_position": pl.Series([curve.query_position] * rows, dtype=pl.Int32),
            "key_position": np.tile(np.arange(n_keys) + curve.first_key, n_heads),
            "layer_norm": [curve.layer_norm] * rows,
            **{
                name: getattr(curve, name).ravel()
                for name in ("mean", "low", "high", "at_smallest_scale", "at_largest_scale")
            },
        }
    )


def offset_table(curve: OffsetCurve) -> pl.DataFrame:
    n_heads, n_offsets = curve.values.shape
    return POSITIONS_BY_OFFSET.frame(
        {
            "head": np.repeat(np.arange(n_heads), n_offsets),
            "quantity": [curve.quantity] * curve.values.size,
            "query_position": pl.Series([curve.query_position] * curve.values.size, dtype=pl.Int32),
            "offset": np.tile(np.arange(n_offsets) + curve.first_offset, n_heads),
            "value": curve.values.ravel(),
        }
    )


def curve_lines(curves: pl.DataFrame, value: str, place: str, place_name: str) -> pl.DataFrame:
    """One line per curve: range, peak and sparkline."""
    along = f"along the {place_name}s"
    by_curve = curves.sort("head", maintain_order=True).group_by(
        "head", "quantity", "query_position", maintain_order=True
    )
    lines = by_curve.agg(
        pl.col(value).min().round_sig_figs(SHOWN_DIGITS).alias("lowest"),
        pl.col(value).max().round_sig_figs(SHOWN_DIGITS).alias("highest"),
        pl.col(place).get(pl.col(value).arg_max()).alias(f"at {place_name}"),
        pl.col(value).alias(along),
    )
    drawn = [sparkline(curve.drop_nulls().to_list(), DRAWN_PLACES) for curve in lines[along]]
    return lines.rename({"query_position": "query"}).with_columns(pl.Series(along, drawn, pl.String))
