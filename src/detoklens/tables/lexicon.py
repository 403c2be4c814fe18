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
