"""The table of what each term contributes to the attention on real text."""

from __future__ import annotations

import polars as pl

from detoklens.tables.schema import HEAD, Column, Schema

CONTRIBUTIONS = Schema(
    "contributions",
    "How much would the attention on text change if a term were missing?",
    (
        HEAD,
        Column("query_position", pl.Int32, "position of the token that attends, from 0"),
        Column("term", pl.String, "the term that is left out: ee, pp, pe, ep, e or p"),
        Column("kl", pl.Float64, "KL divergence in nats of attention without the term and whole attention, mean"),
        Column("standard_error", pl.Float64, "standard error of that mean over documents; null for one document"),
        Column("top_changed", pl.Float64, "share of documents where another token becomes the most attended one"),
        Column("documents", pl.Int64, "documents long enough to have this query position"),
    ),
)

CONTRIBUTIONS_BY_HEAD = Schema(
    "contributions_by_head",
    "Which terms carry a head's attention, over all its query positions?",
    (
        HEAD,
        Column("term", pl.String, "the term that is left out: ee, pp, pe, ep, e or p"),
        Column("kl", pl.Float64, "KL divergence in nats: mean over documents, then over query positions"),
        Column("share", pl.Float64, "this term's part of the sum of the head's six KL divergences"),
        Column("top_changed", pl.Float64, "share of documents where the top token changes: mean over positions"),
        Column("rank", pl.Int32, "1 for the term whose absence changes this head's attention most"),
    ),
)
