"""What do the counts of a corpus say?"""

from __future__ import annotations

import polars as pl

from detoklens.tables.schema import Column, Schema

COUNT_TOTALS = Schema(
    "count_totals",
    "How much text was counted, and what was found in it?",
    (
        Column("documents", pl.Int64, "documents read"),
        Column("megabytes", pl.Float64, "their text in UTF-8, in millions of bytes"),
        Column("tokens", pl.Int64, "tokens of all documents; no special token is added"),
        Column("distinct_tokens", pl.Int64, "tokens of the vocabulary that occur"),
        Column("bigrams", pl.Int64, "pairs of neighbours inside a document"),
        Column("distinct_bigrams", pl.Int64, "different pairs among them"),
        Column("replaced_characters", pl.Int64, "undecodable bytes or half surrogates that became U+FFFD"),
        Column("skipped_records", pl.Int64, "broken records that were left out"),
    ),
)

PREDECESSORS = Schema(
    "predecessors",
    "Which tokens stand before a token most often?",
    (
        Column("rank", pl.Int32, "place by count, from 1"),
        Column("prefix_id", pl.Int32, "token id of the predecessor"),
        Column("prefix", pl.String, "its text"),
        Column("count", pl.Int64, "how often it stands directly before the token, inside a document"),
        Column("share", pl.Float64, "of all predecessors of the token"),
    ),
)
