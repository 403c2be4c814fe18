"""Columns of the tables of `Layers`."""

from __future__ import annotations

from detoklens.questions.twins_schemas import BOS, CONTROLS, with_interval
from detoklens.tables.schema import Column, Schema

TWINS_BY_LAYER = Schema(
    "twins_by_layer",
    "After which layer is the word there?",
    (
        Column("layer", "Int32", "block after which the places are compared, from 0"),
        Column("condition", "String", f"whole; {CONTROLS}"),
        Column("words", "Int32", "number of words"),
        Column("candidates", "Int32", "number of tokens that are ranked"),
        BOS,
        *with_interval("median_rank", "median rank of the twin"),
        *with_interval("first", "share of words whose twin is at rank 1"),
        *with_interval("first_ten", "share of words whose twin is among the first ten"),
        *with_interval("mean_reciprocal_rank", "mean of 1 / rank"),
        *with_interval("rank_lost", "median_rank less that of whole, of the same words"),
        *with_interval("rank_ratio", "geometric mean over words of rank / rank in whole; above 1 is worse"),
    ),
)

TWINS_BY_COMPONENT = Schema(
    "twins_by_component",
    "Which heads and MLPs does the word need, and which heads look back?",
    (
        Column("component", "String", "what is switched off: L1H4 is head 4 of layer 1, MLP1 the MLP of layer 1"),
        Column("layer", "Int32", "its block, from 0"),
        Column("head", "Int32", "its head, from 0; null for an MLP"),
        Column("after", "Int32", "block after which the places are compared, from 0"),
        *with_interval("median_rank", "median rank of the twin with it off"),
        *with_interval("rank_ratio", "geometric mean over words of that rank / the rank with nothing off"),
        *with_interval("null_median_rank", "median rank with it off where the first piece is another word's"),
        *with_interval("null_ratio", "rank_ratio of that null: what it does to any two tokens"),
        *with_interval("needed", "rank_ratio / null_ratio, word by word: what is lost of this word; 1 is nothing"),
        *with_interval(
            "share_lost",
            "log needed / log of how many times better the word's rank is than its null's; null where it is not better",
        ),
        Column(
            "matters",
            "Boolean",
            "the first piece is carried, share_lost_low is above a quarter, and the null is not at chance with it off; "
            "null without intervals",
        ),
        Column("attention", "Float64", "mean attention of the head from the last piece to the piece before it"),
        Column("null_attention", "Float64", "the same where the piece before is another word's"),
    ),
)
