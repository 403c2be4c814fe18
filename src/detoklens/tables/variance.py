"""Which positions stand out? Variances of position embeddings, the switch at position 0, the last position."""

from __future__ import annotations

import polars as pl

from detoklens.tables.schema import HEAD, Column, Schema

POSITION_VARIANCE = Schema(
    "position_variance",
    "Which position embeddings have an exceptional variance?",
    (
        Column("position", pl.Int32, "row of the position table, from 0"),
        Column("variance", pl.Float64, "population variance of the embedding over its features"),
        Column("scale", pl.Float64, "mean over the vocabulary of σ(e + p), what LayerNorm divides by there"),
        Column(
            "deviation", pl.Float64, "modified z-score of log variance against its neighbours; null if most are equal"
        ),
        Column("outlier", pl.Boolean, "deviation beyond ±5 and variance more than a quarter from its neighbours'"),
    ),
)

SWITCH = Schema(
    "switch",
    "How much of position 0's jump in T^p is LayerNorm's?",
    (
        HEAD,
        Column("first_without_norm", pl.Float64, "T^p at position 0 without the division by σ"),
        Column("next_without_norm", pl.Float64, "the same, mean of the next ten positions"),
        Column("first", pl.Float64, "T^p at position 0"),
        Column("next", pl.Float64, "T^p, mean of the next ten positions"),
        Column("jump_without_norm", pl.Float64, "first − next, both without the division by σ"),
        Column("jump", pl.Float64, "first − next"),
        Column("by_scale", pl.Float64, "the part of the jump that comes from σ's difference"),
        Column("by_score", pl.Float64, "the part that comes from the difference of the undivided scores"),
        Column("scale_share", pl.Float64, "by_scale / jump; null where there is no jump"),
    ),
)

LAST_QUERIES = Schema(
    "last_queries",
    "What do the last query positions look for, LayerNorm left out?",
    (
        HEAD,
        Column("query_position", pl.Int32, "one of the last five positions"),
        Column("key_position", pl.Int32, "position of the key, from 0 to the query's own"),
        Column("comparison", pl.Float64, "T^pp without the division by σ"),
    ),
)

UNDERTRAINED = Schema(
    "undertrained",
    "Does the last query position depart from those before it?",
    (
        HEAD,
        Column("size", pl.Float64, "root mean square of T^pp without LayerNorm at the last query position"),
        Column("usual_size", pl.Float64, "the same of the mean of the four queries before it"),
        Column("departure", pl.Float64, "‖last − mean of the four before‖ / ‖that mean‖, over keys that all five see"),
        Column(
            "usual_departure", pl.Float64, "the largest departure of one of the four from the mean of the other three"
        ),
        Column("undertrained", pl.Boolean, "usual at most 0.5, departure at least 0.5 and three times the usual"),
    ),
)
