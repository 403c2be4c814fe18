"""The table of `detoklens verify`."""

import polars as pl

from detoklens.tables.schema import HEAD, Column, Schema

VERIFICATION = Schema(
    "verification",
    "How far is the decomposition from the real model?",
    (
        Column("dtype", pl.String, "number type of both computations"),
        HEAD,
        Column("attention_difference", pl.Float64, "largest |difference| of an attention weight"),
        Column(
            "output_difference",
            pl.Float64,
            "largest |difference| of what the head, or the whole layer, writes, over max(1, largest |value|)",
        ),
        Column("tolerance", pl.Float64, "what is still called equal"),
        Column("passed", pl.Boolean, "both differences are within the tolerance"),
    ),
)
