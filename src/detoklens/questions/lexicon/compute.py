"""Tables of `lexicon`: pairs with their texts and counts, and shares by head with their nulls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from detoklens.measures.ranking import pair_counts
from detoklens.measures.words import exchange_keys, joined_texts, token_texts
from detoklens.tables.schema import (
    BIGRAM_COUNT,
    HEAD,
    JOINED,
    KEY_TOKEN,
    KEY_TOKEN_ID,
    QUERY_TOKEN,
    QUERY_TOKEN_ID,
    SCORE,
    Column,
    Schema,
)

if TYPE_CHECKING:
    from jaxtyping import Int

    from detoklens.measures.words import WordCheck
    from detoklens.parallel import Arrays
    from detoklens.questions.study import Study


LEXICON = Schema(
    "lexicon",
    "Pairs with the largest Tᵉᵉ over the whole vocabulary, by head",
    (
        HEAD,
        Column("rank", "Int32", "rank among all pairs of the head, 1 is the largest; ties by token ids"),
        KEY_TOKEN_ID,
        KEY_TOKEN,
        QUERY_TOKEN_ID,
        QUERY_TOKEN,
        SCORE,
        JOINED,
        Column("is_word", "Boolean", "whether the joined text is a word; null without a word list"),
        BIGRAM_COUNT,
    ),
)

EXCHANGED = "the same with keys exchanged by a fixed draw, without the head's own pairs; null below 30 pairs"
FEWEST_EXCHANGED = 30

LEXICON_BY_HEAD = Schema(
    "lexicon_by_head",
    "Lexicon by head",
    (
        HEAD,
        Column("pairs", "Int32", "pairs in the head's lexicon"),
        Column("word_share", "Float64", "share of pairs whose joined text is a word; null without a word list"),
        Column("word_null", "Float64", EXCHANGED),
        Column("seen_share", "Float64", "share of pairs that occur in the corpus; null without counts"),
        Column("seen_null", "Float64", EXCHANGED),
        Column("identical_share", "Float64", "share of pairs of a token with itself"),
        Column("query_tokens", "Int32", "distinct query tokens"),
        Column("key_tokens", "Int32", "distinct key tokens; few if every query prefers the same keys"),
        Column("largest_score", "Float64", "largest Tᵉᵉ"),
        Column("smallest_score", "Float64", "smallest Tᵉᵉ in the lexicon"),
    ),
)

NULLS = ("head", "word_null", "seen_null")


def ranked(head: int, pairs: Arrays) -> pl.DataFrame:
    n_pairs = len(pairs["score"])
    return pl.DataFrame(
        {
            "head": np.full(n_pairs, head),
            "rank": np.arange(1, n_pairs + 1),
            "key_token_id": pairs["key"],
            "query_token_id": pairs["query"],
            "score": pairs["score"],
        }
    )


def described(study: Study, found: pl.DataFrame, is_word: WordCheck | None, is_ahead: bool) -> pl.DataFrame:
    """Add texts, whether they are words and, with counts, how often the pair occurs."""
    keys, queries = found["key_token_id"].to_numpy(), found["query_token_id"].to_numpy()
    first, second = (queries, keys) if is_ahead else (keys, queries)
    joined = joined_texts(study.layer, first, second)
    known = _which_are_words(joined, is_word)
    frame = found.with_columns(
        pl.Series("key_token", token_texts(study.layer, keys), pl.String),
        pl.Series("query_token", token_texts(study.layer, queries), pl.String),
        pl.Series("joined", joined, pl.String),
        pl.Series("is_word", known, pl.Boolean),
    )
    if study.counts is None:
        return LEXICON.without("count").conform(frame)
    return LEXICON.conform(frame.with_columns(pl.Series("count", pair_counts(study.counts, first, second))))


def _which_are_words(joined: Iterable[str | None], is_word: WordCheck | None) -> list[bool | None]:
    return [None if is_word is None or text is None else is_word(text) for text in joined]


def by_chance(study: Study, pairs_of: Mapping[int, Arrays], is_word: WordCheck | None, is_ahead: bool) -> pl.DataFrame:
    """The shares of words and of corpus pairs with each head's keys exchanged."""
    return pl.DataFrame([_nulls(study, head, pairs, is_word, is_ahead) for head, pairs in pairs_of.items()], NULLS)


def _nulls(study: Study, head: int, pairs: Arrays, is_word: WordCheck | None, is_ahead: bool) -> dict[str, Any]:
    keys, queries = _exchanged(pairs)
    if len(keys) < FEWEST_EXCHANGED:
        return {"head": head}
    first, second = (queries, keys) if is_ahead else (keys, queries)
    words = pl.Series(_which_are_words(joined_texts(study.layer, first, second), is_word), dtype=pl.Boolean)
    seen = None if study.counts is None else float(np.mean(pair_counts(study.counts, first, second) > 0))
    return {"head": head, "word_null": words.mean(), "seen_null": seen}


def _exchanged(pairs: Arrays) -> tuple[Int[np.ndarray, "pair"], Int[np.ndarray, "pair"]]:
    """The pairs with exchanged keys, without the head's own pairs and pairs of a token with itself."""
    queries, own = pairs["query"].astype(np.int64), pairs["key"].astype(np.int64)
    keys = exchange_keys(own)
    step = 1 + max(own.max(initial=0), queries.max(initial=0))
    is_other = (keys != queries) & ~np.isin(keys * step + queries, own * step + queries)
    return keys[is_other], queries[is_other]


def by_head(pairs: pl.DataFrame, by_chance: pl.DataFrame) -> pl.DataFrame:
    seen = (pl.col("count") > 0).mean() if "count" in pairs.columns else pl.lit(None)
    return LEXICON_BY_HEAD.conform(
        pairs.group_by("head", maintain_order=True)
        .agg(
            pl.len().alias("pairs"),
            pl.col("is_word").mean().alias("word_share"),
            seen.alias("seen_share"),
            (pl.col("key_token_id") == pl.col("query_token_id")).mean().alias("identical_share"),
            pl.col("query_token_id").n_unique().alias("query_tokens"),
            pl.col("key_token_id").n_unique().alias("key_tokens"),
            pl.col("score").max().alias("largest_score"),
            pl.col("score").min().alias("smallest_score"),
        )
        .join(by_chance.cast({"head": pairs.schema["head"]}), on="head", how="left", maintain_order="left")
    )
