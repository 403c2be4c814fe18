"""Columns of the AUROC tables: per query token, per head, beside their controls, and the curve of one token."""

from __future__ import annotations

import polars as pl

from detoklens.tables.schema import HEAD, Column, Schema

TOKEN_ID = Column("token_id", pl.Int32, "id of the query token")
TOKEN = Column("token", pl.String, "text of the query token")

AUROC_BY_TOKEN = Schema(
    "auroc_by_token",
    "How well does a head rank the tokens that precede a token above all others?",
    (
        HEAD,
        TOKEN_ID,
        TOKEN,
        Column("auroc", pl.Float64, "weighted AUROC of the query token; null without positives or without negatives"),
        Column("positives", pl.Int64, "key tokens that count as positives"),
        Column("bigrams", pl.Int64, "total weight of the positives: with counts, how many bigrams end in the token"),
    ),
)

AUROC_BY_HEAD = Schema(
    "auroc_by_head",
    "Which heads detokenize: how high is a head's AUROC, averaged over query tokens?",
    (
        HEAD,
        Column("seen", pl.Float64, "mean AUROC over the query tokens that have one"),
        Column("seen_low", pl.Float64, "lower end of its bootstrap interval"),
        Column("seen_high", pl.Float64, "upper end of its bootstrap interval"),
        Column("all", pl.Float64, "mean over all query tokens, an undefined AUROC counted as 0: the paper's code"),
        Column("all_low", pl.Float64, "lower end of its bootstrap interval"),
        Column("all_high", pl.Float64, "upper end of its bootstrap interval"),
        Column("weighted", pl.Float64, "mean over the query tokens that have one, weighted by their bigrams"),
        Column("weighted_low", pl.Float64, "lower end of its bootstrap interval"),
        Column("weighted_high", pl.Float64, "upper end of its bootstrap interval"),
        Column("tokens", pl.Int64, "query tokens asked about"),
        Column("tokens_seen", pl.Int64, "query tokens whose AUROC is defined"),
    ),
)

AUROC_CONTROLS = Schema(
    "auroc_controls",
    "How much of a head's AUROC remains when the query, or the key, is exchanged, or frequency alone ranks the keys?",
    (
        HEAD,
        Column("auroc", pl.Float64, "mean AUROC over the query tokens that have one: `seen` of auroc_by_head"),
        Column("shuffled_queries", pl.Float64, "the same with each token's positives scored by another token's row"),
        Column("permuted_keys", pl.Float64, "the same with key tokens permuted among tokens of equal frequency"),
        Column("frequency", pl.Float64, "the same where a key's score is its corpus count: no head at all"),
        Column("above_null", pl.Float64, "auroc minus the larger of the two nulls"),
        Column("above_frequency", pl.Float64, "auroc minus the frequency baseline"),
    ),
)

PRECISION_BY_HEAD = Schema(
    "precision_by_head",
    "How many of the keys that a head ranks first are positives?",
    (
        HEAD,
        Column("average_precision", pl.Float64, "mean over seen query tokens of the weighted average precision"),
        Column("chance_average_precision", pl.Float64, "the same for a constant score: the positives' share of weight"),
        Column("k", pl.Int32, "how many of the first keys are looked at"),
        Column("precision_at_k", pl.Float64, "mean over seen query tokens of the positives' share of the first k keys"),
        Column("chance_precision_at_k", pl.Float64, "the same for a constant score: the positives' share of all keys"),
    ),
)

PRECISION_BY_TOKEN = Schema(
    "precision_by_token",
    "How many of the keys that a head ranks first are positives of this query token?",
    (
        HEAD,
        TOKEN_ID,
        TOKEN,
        Column("average_precision", pl.Float64, "weighted average precision; null where the AUROC is undefined"),
        Column("k", pl.Int32, "how many of the first keys are looked at"),
        Column(
            "precision_at_k", pl.Float64, "positives among the first k keys, divided by k; ties count in expectation"
        ),
    ),
)

ROC_POINTS = Schema(
    "roc_points",
    "What share of the positives stands above each threshold, and what share of the negatives?",
    (
        HEAD,
        TOKEN_ID,
        TOKEN,
        Column("threshold", pl.Float32, "keys with at least this score count as found; null for none found"),
        Column("false_positive_rate", pl.Float64, "share of the negatives found"),
        Column("true_positive_rate", pl.Float64, "share of the positives' weight found"),
    ),
)
