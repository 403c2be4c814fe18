"""The tables of `Positions`, and how they are shown: curves along the keys, or by distance from the query."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from detoklens.questions.base import View
from detoklens.tables.rendering import sparkline
from detoklens.tables.schema import HEAD, Column, Schema

if TYPE_CHECKING:
    from detoklens.measures.positions import Curve, OffsetCurve


DRAWN_PLACES = 22  # characters of a curve in a terminal: the whole row then fits 80, also with six-digit positions
SHOWN_DIGITS = 3

POSITIONS = Schema(
    "positions",
    "Where does position alone pull attention?",
    (
        HEAD,
        Column(
            "quantity",
            "String",
            "p, pp, their sum (p+pp), or attention: softmax of the sum over the keys in view",
        ),
        Column("query_position", "Int32", "position of the query, from 0; null where the query has no part"),
        Column("key_position", "Int32", "position of the key, up to the query's own unless the model looks both ways"),
        Column("layer_norm", "Boolean", "whether the division by σ is in"),
        Column("mean", "Float64", "value with σ averaged over the vocabulary, as the option `average` says"),
        Column(
            "low",
            "Float64",
            "lower end of the band that holds most tokens (pp, p+pp: pairs of tokens); attention: null",
        ),
        Column("high", "Float64", "upper end of that band"),
        Column("at_smallest_scale", "Float64", "value with the vocabulary's smallest σ at the query and at the key"),
        Column("at_largest_scale", "Float64", "value with the vocabulary's largest σ at the query and at the key"),
    ),
)


POSITIONS_BY_OFFSET = Schema(
    "positions_by_offset",
    "Where does distance alone pull attention?",
    (
        HEAD,
        Column("quantity", "String", "p: the position kernel, or attention: its softmax over the keys in view"),
        Column("query_position", "Int32", "position of the query, from 0; null for the kernel, which has none"),
        Column("offset", "Int32", "how many places before its query a key stands; below 0 after it"),
        Column("value", "Float64", "the kernel, not yet multiplied by the attention scale, or the attention"),
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


def offset_view(by_offset: pl.DataFrame) -> View:
    """One line per curve: its ends, its peak, its course from the query back."""
    return View(POSITIONS_BY_OFFSET.question, _lines(by_offset, "value", "offset", "offset"))


def along_keys(by_offset: pl.DataFrame) -> pl.DataFrame:
    """Attention by distance as attention by key position."""
    key = (pl.col("query_position") - pl.col("offset")).alias("key_position")
    return by_offset.with_columns(key).rename({"value": "mean"})


def curve_view(positions: pl.DataFrame) -> View:
    """One line per curve with LayerNorm: its ends, its peak, its course from the first key to the last."""
    shown = positions.filter(pl.col("layer_norm") & (pl.col("quantity") != "p+pp"))
    return View(POSITIONS.question, _lines(shown, "mean", "key_position", "key"))


def _lines(curves: pl.DataFrame, value: str, place: str, place_name: str) -> pl.DataFrame:
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
    drawn = pl.Series(along, [_drawn(curve) for curve in lines[along]], pl.String)
    return lines.rename({"query_position": "query"}).with_columns(drawn)


def _drawn(curve: pl.Series) -> str:
    return sparkline(curve.drop_nulls().to_list(), DRAWN_PLACES)
