"""Where does position pull attention? T^p, T^pp, their sum and its softmax, one number per head and key position."""

from __future__ import annotations

import polars as pl

from detoklens.tables.schema import HEAD, Column, Schema

QUERY_POSITION = Column("query_position", pl.Int32, "position of the query, from 0; null where the query has no part")
KEY_POSITION = Column("key_position", pl.Int32, "position of the key, from 0 to the query's own")

POSITIONS = Schema(
    "positions",
    "Where does position alone pull attention?",
    (
        HEAD,
        Column("quantity", pl.String, "p, pp, their sum (p+pp), or attention: softmax of the sum over keys ≤ query"),
        QUERY_POSITION,
        KEY_POSITION,
        Column("layer_norm", pl.Boolean, "whether the division by σ is in"),
        Column("mean", pl.Float64, "value with σ averaged over the vocabulary, as the option `average` says"),
        Column(
            "low",
            pl.Float64,
            "lower end of the band that holds most tokens (pp, p+pp: pairs of tokens); attention: null",
        ),
        Column("high", pl.Float64, "upper end of that band"),
        Column("at_smallest_scale", pl.Float64, "value with the vocabulary's smallest σ at the query and at the key"),
        Column("at_largest_scale", pl.Float64, "value with the vocabulary's largest σ at the query and at the key"),
    ),
)
