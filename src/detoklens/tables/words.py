"""Do heads look from a word's later piece to the piece before it?"""

from __future__ import annotations

import polars as pl

from detoklens.tables.schema import HEAD, Column, Schema
from detoklens.tables.tokens import JOINED, KEY_TOKEN, KEY_TOKEN_ID, QUERY_TOKEN, QUERY_TOKEN_ID, RANK, SCORE

WORD = Column("word", pl.String, "the word or name, without the space in front of it")

WORD_PIECES = Schema(
    "word_pieces",
    "Into which tokens does the tokenizer split each word?",
    (
        WORD,
        Column("pieces", pl.Int32, "number of tokens; a word of one token has no pair to rank"),
        Column("split", pl.String, "the tokens' texts, separated by |"),
    ),
)

WORD_RANKS = Schema(
    "word_ranks",
    "At which rank does each head find the piece before, asked from the piece after?",
    (
        WORD,
        Column("pair", pl.Int32, "which adjacent pair of the word's pieces, from 0"),
        KEY_TOKEN_ID,
        KEY_TOKEN,
        QUERY_TOKEN_ID,
        QUERY_TOKEN,
        HEAD,
        RANK,
        SCORE,
    ),
)

WORDS_BY_HEAD = Schema(
    "words_by_head",
    "Which head puts a word's pieces together best?",
    (
        HEAD,
        Column("pairs", pl.Int32, "adjacent pairs of pieces that were ranked"),
        Column("median_rank", pl.Float64, "median rank of the piece before"),
        Column("median_share", pl.Float64, "median rank as a share of the vocabulary; chance is 0.5"),
        Column(
            "null_median_share",
            pl.Float64,
            "the same when each key is ranked for another word's query; null with one word",
        ),
        Column("first", pl.Float64, "share of pairs at rank 1"),
        Column("top_1_percent", pl.Float64, "share of pairs in the top 1 % of the vocabulary; chance is 0.01"),
        Column("top_10_percent", pl.Float64, "share of pairs in the top 10 % of the vocabulary; chance is 0.1"),
    ),
)

PAPER_RANKS = Schema(
    "paper_ranks",
    "Are the ranks of the paper's Table 1 found again?",
    (
        HEAD,
        QUERY_TOKEN,
        KEY_TOKEN,
        JOINED,
        Column("paper_rank", pl.Int32, "rank that the paper prints"),
        RANK,
        Column("difference", pl.Int32, "rank less paper_rank; null where the model has no such token or head"),
        SCORE,
    ),
)
