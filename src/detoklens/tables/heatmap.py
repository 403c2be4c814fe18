"""What does T^ee look like for tokens drawn at random, and does a token look for itself?"""

from __future__ import annotations

import polars as pl

from detoklens.tables.schema import HEAD, Column, Schema
from detoklens.tables.tokens import KEY_TOKEN_ID, QUERY_TOKEN_ID, TOKEN, TOKEN_ID

LAYER_NORM = Column("layer_norm", pl.Boolean, "whether scores are divided by σ of query and key, as LayerNorm does")

HEATMAP_TOKENS = Schema(
    "heatmap_tokens",
    "Which tokens were drawn?",
    (Column("place", pl.Int32, "row and column of the token in the heatmap, from 0"), TOKEN_ID, TOKEN),
)

HEATMAP = Schema(
    "heatmap",
    "What is T^ee of every pair of the drawn tokens?",
    (
        HEAD,
        LAYER_NORM,
        Column("query_place", pl.Int32, "row of the heatmap"),
        Column("key_place", pl.Int32, "column of the heatmap"),
        QUERY_TOKEN_ID,
        KEY_TOKEN_ID,
        Column("score", pl.Float32, "T^ee of the pair"),
    ),
)

HEATMAP_BY_HEAD = Schema(
    "heatmap_by_head",
    "How wide is T^ee spread in each head, and does the identical token stand out?",
    (
        HEAD,
        LAYER_NORM,
        Column("minimum", pl.Float64, "smallest score of a drawn pair"),
        Column("maximum", pl.Float64, "largest score of a drawn pair"),
        Column("diagonal_mean", pl.Float64, "mean score of the drawn tokens with themselves"),
        Column("other_mean", pl.Float64, "mean score of the drawn pairs of different tokens"),
        Column("diagonal_share", pl.Float64, "share of drawn rows whose largest score is on the diagonal"),
        Column(
            "self_match", pl.Float64, "mean over the drawn tokens of the z-score of T^ee[i, i] in row i of all keys"
        ),
        Column("self_first", pl.Float64, "share of the drawn tokens that rank first among all keys of their own row"),
        Column("self_median_rank", pl.Float64, "median rank of the identical token among all keys"),
    ),
)
