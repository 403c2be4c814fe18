"""The tables of `detoklens count` and `detoklens counts`."""

from __future__ import annotations

from detoklens.tables.schema import Column, Schema

COUNT_TOTALS = Schema(
    "count_totals",
    "Totals of the counted text",
    (
        Column("documents", "Int64", "documents read"),
        Column("megabytes", "Float64", "size of the text in UTF-8, in millions of bytes"),
        Column("tokens", "Int64", "tokens of all documents, without special tokens"),
        Column("distinct_tokens", "Int64", "tokens of the vocabulary that occur"),
        Column("bigrams", "Int64", "pairs of adjacent tokens within a document"),
        Column("distinct_bigrams", "Int64", "distinct pairs of adjacent tokens"),
        Column("replaced_characters", "Int64", "undecodable bytes and lone surrogates, replaced with U+FFFD"),
        Column("skipped_records", "Int64", "invalid records that were skipped"),
    ),
)

PREDECESSORS = Schema(
    "predecessors",
    "Most frequent predecessors of a token",
    (
        Column("rank", "Int32", "rank by count, from 1"),
        Column("prefix_id", "Int32", "token id of the predecessor"),
        Column("prefix", "String", "its text"),
        Column("count", "Int64", "how often it directly precedes the token within a document"),
        Column("share", "Float64", "share of all predecessors of the token"),
    ),
)
