"""Which pairs of tokens do the weights themselves join most strongly?"""

from __future__ import annotations

import polars as pl

from detoklens.tables.schema import HEAD, Column, Schema
from detoklens.tables.tokens import (
    BIGRAM_COUNT,
    JOINED,
    KEY_TOKEN,
    KEY_TOKEN_ID,
    QUERY_TOKEN,
    QUERY_TOKEN_ID,
    SCORE,
)

LEXICON = Schema(
    "lexicon",
    "Which pairs have the largest T^ee over the whole vocabulary, in every head?",
    (
        HEAD,
        Column("rank", pl.Int32, "place of the pair among all pairs of the head, 1 is the largest; ties by token ids"),
        KEY_TOKEN_ID,
        KEY_TOKEN,
        QUERY_TOKEN_ID,
        QUERY_TOKEN,
        SCORE,
        JOINED,
        Column("is_word", pl.Boolean, "whether the joined text is a word; null without a list or library to ask"),
        BIGRAM_COUNT,
    ),
)

LEXICON_BY_HEAD = Schema(
    "lexicon_by_head",
    "How much of each head's lexicon are words?",
    (
        HEAD,
        Column("pairs", pl.Int32, "pairs in the head's lexicon"),
        Column("word_share", pl.Float64, "share of them whose joined text is a word; null where that is unknown"),
        Column("seen_share", pl.Float64, "share of them that occur in the corpus; null without counts"),
        Column("identical_share", pl.Float64, "share of them that pair a token with itself"),
        Column("query_tokens", pl.Int32, "different query tokens in them"),
        Column("key_tokens", pl.Int32, "different key tokens in them: few, where some keys suit every query"),
        Column("largest_score", pl.Float64, "largest T^ee"),
        Column("smallest_score", pl.Float64, "smallest T^ee in the lexicon"),
    ),
)
