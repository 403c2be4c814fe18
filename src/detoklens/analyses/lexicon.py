"""Which pairs of tokens do the weights themselves join? The largest T^ee over all V × V pairs, head by head.

The model's inner vocabulary, mined without a corpus; counts and a list of words, where given, only annotate it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from detoklens.analyses.block_runs import Arrays, Runner
from detoklens.analyses.pair_counts import pair_counts
from detoklens.analyses.token_text import joined_texts, token_texts
from detoklens.analyses.top_pairs import BLOCK_QUERIES, PairBlock, TopPairs, search_block
from detoklens.analyses.word_check import WordCheck
from detoklens.errors import RangeError
from detoklens.scores.affinity import Affinity
from detoklens.scores.layer import Layer, TokenScale
from detoklens.tables.lexicon import LEXICON, LEXICON_BY_HEAD

if TYPE_CHECKING:
    from detoklens.corpus.counts import Counts

ALONE = Runner()
MOST_PAIRS = 10_000_000
"""Rows of a lexicon that a laptop's memory holds: with their texts they take about 250 bytes each."""


def lexicon(
    layer: Layer,
    *,
    top: int = 10_000,
    heads: Sequence[int] | None = None,
    scale: TokenScale = "mean",
    centred: bool = False,
    identical: bool = True,
    is_word: WordCheck | None = None,
    counts: Counts | None = None,
    runner: Runner = ALONE,
) -> pl.DataFrame:
    """The `top` pairs with the largest T^ee in each head; without `identical`, no token with itself."""
    if top < 1:
        raise RangeError(f"the top {top} pairs were asked for; at least 1 is needed")
    heads = list(range(layer.n_heads)) if heads is None else list(heads)
    layer.check_heads(heads)
    if min(top, layer.vocab_size**2) * len(heads) > MOST_PAIRS:
        raise RangeError(
            f"the top {top:,} pairs, heads: {len(heads)}, are more than the {MOST_PAIRS:,} that fit into memory; "
            "lower --top or choose some --heads"
        )
    affinity = layer.token_affinity(scale, centred).of_heads(heads)
    best = largest_pairs(affinity, top, identical, runner)
    found = pl.concat([_ranked(head, pairs) for head, pairs in zip(heads, best, strict=True)])
    return _described(layer, found, is_word, counts)


def largest_pairs(affinity: Affinity, top: int, identical: bool = True, runner: Runner = ALONE) -> list[Arrays]:
    """The best pairs of every head, block by block; each block starts from the floor that earlier ones have reached."""
    best = [TopPairs(top) for _ in range(affinity.n_heads)]
    blocks = -(-affinity.vocab_size // BLOCK_QUERIES)

    def task(number: int) -> PairBlock:
        head, first = number // blocks, number % blocks * BLOCK_QUERIES
        query = affinity.query[head, first : first + BLOCK_QUERIES]
        return PairBlock(query, affinity.key[head], first, top, identical, best[head].floor)

    for number, pairs in enumerate(runner.run(search_block, task, blocks * affinity.n_heads)):
        best[number // blocks].offer(pairs)
        best[number // blocks].best()
    return [pairs.best() for pairs in best]


def _ranked(head: int, pairs: Arrays) -> pl.DataFrame:
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


def _described(layer: Layer, found: pl.DataFrame, is_word: WordCheck | None, counts: Counts | None) -> pl.DataFrame:
    keys, queries = found["key_token_id"].to_numpy(), found["query_token_id"].to_numpy()
    joined = joined_texts(layer, keys, queries)
    known = [None if is_word is None or text is None else is_word(text) for text in joined]
    frame = found.with_columns(
        pl.Series("key_token", token_texts(layer, keys), pl.String),
        pl.Series("query_token", token_texts(layer, queries), pl.String),
        pl.Series("joined", joined, pl.String),
        pl.Series("is_word", known, pl.Boolean),
    )
    if counts is None:
        return LEXICON.without("count").conform(frame)
    return LEXICON.conform(frame.with_columns(pl.Series("count", pair_counts(counts, keys, queries))))


def lexicon_by_head(pairs: pl.DataFrame) -> pl.DataFrame:
    """How much of each head's lexicon are words, pairs of the corpus, tokens with themselves?"""
    seen = (pl.col("count") > 0).mean() if "count" in pairs.columns else pl.lit(None)
    return LEXICON_BY_HEAD.conform(
        pairs.group_by("head", maintain_order=True).agg(
            pl.len().alias("pairs"),
            pl.col("is_word").mean().alias("word_share"),
            seen.alias("seen_share"),
            (pl.col("key_token_id") == pl.col("query_token_id")).mean().alias("identical_share"),
            pl.col("query_token_id").n_unique().alias("query_tokens"),
            pl.col("key_token_id").n_unique().alias("key_tokens"),
            pl.col("score").max().alias("largest_score"),
            pl.col("score").min().alias("smallest_score"),
        )
    )
