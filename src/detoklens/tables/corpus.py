"""What do the counts of a corpus say?"""

from __future__ import annotations

from detoklens.tables.schema import Column, Schema

COUNT_TOTALS = Schema(
    "count_totals",
    "How much text was counted, and what was found in it?",
    (
        Column("documents", "Int64", "documents read"),
        Column("megabytes", "Float64", "their text in UTF-8, in millions of bytes"),
        Column("tokens", "Int64", "tokens of all documents; no special token is added"),
        Column("distinct_tokens", "Int64", "tokens of the vocabulary that occur"),
        Column("bigrams", "Int64", "pairs of neighbours inside a document"),
        Column("distinct_bigrams", "Int64", "different pairs among them"),
        Column("replaced_characters", "Int64", "undecodable bytes or half surrogates that became U+FFFD"),
        Column("skipped_records", "Int64", "broken records that were left out"),
    ),
)

PREDECESSORS = Schema(
    "predecessors",
    "Which tokens stand before a token most often?",
    (
        Column("rank", "Int32", "place by count, from 1"),
        Column("prefix_id", "Int32", "token id of the predecessor"),
        Column("prefix", "String", "its text"),
        Column("count", "Int64", "how often it stands directly before the token, inside a document"),
        Column("share", "Float64", "of all predecessors of the token"),
    ),
)
