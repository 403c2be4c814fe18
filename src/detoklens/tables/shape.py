"""What shape do the position terms have? A line, waves, and where the softmax of their sum puts its mass."""

from __future__ import annotations

import polars as pl

from detoklens.tables.schema import HEAD, Column, Schema

_QUERY = Column("query_position", pl.Int32, "position of the query, from 0")

SHAPE = Schema(
    "shape",
    "Is T^p a line, is T^pp a wave, and how near does their sum pull attention?",
    (
        HEAD,
        _QUERY,
        Column("slope", pl.Float64, "slope of the best line through T^p, per position; the same for every query"),
        Column("r_squared", pl.Float64, "share of T^p's variance on that line; null where T^p is constant"),
        Column("alibi_slope", pl.Float64, "slope × attention scale: what ALiBi would call its slope"),
        Column("linear", pl.Boolean, "r_squared at least 0.9; null with fewer than 16 positions or a constant T^p"),
        Column("period", pl.Float64, "period of T^pp's leading wave, in positions"),
        Column("wave_share", pl.Float64, "share of T^pp's power around its best line that the leading wave has"),
        Column("waves_share", pl.Float64, "share that the leading waves have together"),
        Column(
            "sinusoidal", pl.Boolean, "wave_share at least 0.5; null with fewer than 48 keys or 1.5 periods in view"
        ),
        Column("last_1", pl.Float64, "attention of the softmaxed sum on the query itself"),
        Column("last_5", pl.Float64, "attention on the last 5 tokens, the query included"),
        Column("last_15", pl.Float64, "attention on the last 15 tokens, the query included"),
        Column("on_previous", pl.Float64, "attention on the token before the query; null at query 0"),
        Column("on_first", pl.Float64, "attention on position 0"),
        Column("entropy", pl.Float64, "entropy of the softmaxed sum, in bits"),
        Column("class", pl.String, "self, previous token, first, local or broad"),
    ),
)

WAVES = Schema(
    "waves",
    "Which frequencies lead in T^pp?",
    (
        HEAD,
        _QUERY,
        Column("rank", pl.Int32, "1 for the leading wave, 2 for the next once that is subtracted, and so on"),
        Column("frequency", pl.Float64, "cycles per position"),
        Column("period", pl.Float64, "positions per cycle"),
        Column("amplitude", pl.Float64, "amplitude of the wave, in units of the score"),
        Column("share", pl.Float64, "share of T^pp's power around its best line"),
    ),
)
