"""Why does this text's layer 0 attend as it does? Every pair of tokens, its terms, and what each term does."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from detoklens.tables.schema import HEAD, Column, Schema

_PAIR = (
    HEAD,
    Column("query_position", pl.Int32, "place of the token that attends, from 0"),
    Column("key_position", pl.Int32, "place of the token attended to, from 0 to the query's own"),
    Column("query_token", pl.Int32, "id of the token that attends"),
    Column("key_token", pl.Int32, "id of the token attended to"),
    Column("query_text", pl.String, "its text"),
    Column("key_text", pl.String, "its text"),
)


def explanation_schema(terms: Sequence[str]) -> Schema:
    """Every pair of tokens with the terms that this model has."""
    return Schema(
        "explanation",
        "Why does each head attend as it does in this text?",
        (
            *_PAIR,
            *(
                Column(term, pl.Float64, f"the term {term}, not yet multiplied by the attention scale")
                for term in terms
            ),
            Column("score", pl.Float64, "the sum of all terms"),
            Column("attention", pl.Float64, "softmax over keys ≤ query of score × attention scale"),
            *(
                Column(f"without_{term}", pl.Float64, f"what the attention would be without the term {term}")
                for term in terms
            ),
        ),
    )


def links_schema(terms: Sequence[str]) -> Schema:
    """Each head's strongest links with the terms that this model has."""
    return Schema(
        "links",
        "Which are each head's strongest links, and which term explains each?",
        (
            *_PAIR,
            Column("rank", pl.Int32, "1 for the head's strongest link"),
            Column("attention", pl.Float64, "attention of the link"),
            Column("strength", pl.Float64, "attention × log2(attention × number of keys): bits above even attention"),
            Column("term", pl.String, "the term whose removal lowers the link's attention most; null if none does"),
            Column("without_term", pl.Float64, "the link's attention without that term"),
            *(
                Column(
                    f"lift_{term}", pl.Float64, f"scaled score that {term} adds beyond its mean over the keys, in nats"
                )
                for term in terms
            ),
        ),
    )
