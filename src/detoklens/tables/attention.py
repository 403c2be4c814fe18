"""The tables of measured attention beside the attention that position alone predicts."""

from __future__ import annotations

import polars as pl

from detoklens.tables.schema import HEAD, Column, Schema

QUERY_POSITION = Column("query_position", pl.Int32, "position of the token that attends, from 0")
DOCUMENTS = Column("documents", pl.Int64, "documents long enough to have this query position")

ATTENTION = Schema(
    "attention",
    "How much does text attend to each position, and what did the weights alone predict?",
    (
        HEAD,
        QUERY_POSITION,
        Column("key_position", pl.Int32, "position of the token attended to, from 0 to the query's own"),
        Column("mean", pl.Float64, "attention, mean over documents"),
        Column("low", pl.Float64, "lower edge of the band that holds the asked share of documents"),
        Column("high", pl.Float64, "upper edge of that band"),
        Column("predicted", pl.Float64, "softmax of T^p + T^pp: the attention if positions were all there is"),
        DOCUMENTS,
    ),
)

ATTENTION_AGREEMENT = Schema(
    "attention_agreement",
    "Does attention on text agree with what position alone predicts?",
    (
        HEAD,
        QUERY_POSITION,
        Column("total_variation", pl.Float64, "half the sum of |mean attention − predicted|: 0 equal, 1 disjoint"),
        Column("document_total_variation", pl.Float64, "the same for each document's own attention, then the mean"),
        Column("measured_first", pl.Float64, "mean attention on position 0"),
        Column("measured_far", pl.Float64, "mean attention on all keys that are neither first, recent nor self"),
        Column("measured_recent", pl.Float64, "mean attention on the 15 keys before the query (never position 0)"),
        Column("measured_self", pl.Float64, "mean attention on the query's own position"),
        Column("predicted_first", pl.Float64, "predicted attention on position 0"),
        Column("predicted_far", pl.Float64, "predicted attention on far keys"),
        Column("predicted_recent", pl.Float64, "predicted attention on recent keys"),
        Column("predicted_self", pl.Float64, "predicted attention on the query's own position"),
        DOCUMENTS,
    ),
)
