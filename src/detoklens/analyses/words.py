"""Do heads look from a word's later piece to the piece before it? The paper's Table 1, for any list of words.

For a word of the pieces a b c, the pairs are (key a, query b) and (key b, query c): the key's rank among all key tokens
by T^ee of the query. A head that joins pieces puts it near the top; at random half of the vocabulary stands above it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from jaxtyping import Float, Int

from detoklens.analyses.ranking import pair_ranks
from detoklens.analyses.token_text import token_texts
from detoklens.analyses.watching import Watcher
from detoklens.analyses.word_list import SplitWord, WordPairs, word_pairs
from detoklens.scores.layer import Layer, TokenScale
from detoklens.tables.words import WORD_PIECES, WORD_RANKS, WORDS_BY_HEAD


def word_pieces(layer: Layer, split: Sequence[SplitWord]) -> pl.DataFrame:
    """Into which tokens does each word fall?"""
    return WORD_PIECES.frame(
        {
            "word": [word.word for word in split],
            "pieces": [len(word.token_ids) for word in split],
            "split": ["|".join(map(layer.token, word.token_ids)) for word in split],
        }
    )


def word_ranks(
    layer: Layer,
    split: Sequence[SplitWord],
    *,
    heads: Sequence[int] | None = None,
    scale: TokenScale = "mean",
    centred: bool = False,
    watch: Watcher | None = None,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """At which rank does each head find the piece before? The ranks pair by pair, and their summary head by head."""
    heads = list(range(layer.n_heads)) if heads is None else list(heads)
    layer.check_heads(heads)
    pairs = word_pairs(split)
    affinity = layer.token_affinity(scale, centred).of_heads(heads)
    keys = np.stack([pairs.keys, _keys_of_other_words(pairs)])
    ranks, scores = pair_ranks(affinity, pairs.queries, keys, watch)
    null_ranks = ranks[1] if len(set(pairs.words)) > 1 else np.full(ranks[1].shape, np.nan)
    by_head = _summary(heads, ranks[0], null_ranks, layer.vocab_size)
    return _pair_by_pair(layer, heads, pairs, ranks[0], scores[0]), by_head


def _keys_of_other_words(pairs: WordPairs) -> Int[np.ndarray, "pair"]:
    """A key for each query that belongs to another word: all keys, each once, dealt out anew by a fixed draw."""
    order = np.random.default_rng(0).permutation(len(pairs.keys))
    dealt = np.empty_like(pairs.keys)
    dealt[order] = pairs.keys[np.roll(order, 1)]
    return dealt


def _pair_by_pair(
    layer: Layer,
    heads: Sequence[int],
    pairs: WordPairs,
    ranks: Int[np.ndarray, "head pair"],
    scores: Float[np.ndarray, "head pair"],
) -> pl.DataFrame:
    """One row for each pair and head, the heads of a pair together."""
    repeated = np.repeat(np.arange(len(pairs.words)), len(heads))
    keys, queries = token_texts(layer, pairs.keys), token_texts(layer, pairs.queries)
    return WORD_RANKS.frame(
        {
            "word": [pairs.words[place] for place in repeated],
            "pair": pairs.pair[repeated],
            "key_token_id": pairs.keys[repeated],
            "key_token": [keys[place] for place in repeated],
            "query_token_id": pairs.queries[repeated],
            "query_token": [queries[place] for place in repeated],
            "head": np.tile(np.asarray(heads), len(pairs.words)),
            "rank": ranks.T.ravel(),
            "score": scores.T.ravel(),
        }
    )


def _summary(
    heads: Sequence[int],
    ranks: Int[np.ndarray, "head pair"],
    null_ranks: Int[np.ndarray, "head pair"] | Float[np.ndarray, "head pair"],
    vocab_size: int,
) -> pl.DataFrame:
    median = np.median(ranks, axis=1)
    return WORDS_BY_HEAD.frame(
        {
            "head": heads,
            "pairs": np.full(len(heads), ranks.shape[1]),
            "median_rank": median,
            "median_share": median / vocab_size,
            "null_median_share": np.median(null_ranks, axis=1) / vocab_size,
            "first": (ranks == 1).mean(axis=1),
            "top_1_percent": (ranks <= 0.01 * vocab_size).mean(axis=1),
            "top_10_percent": (ranks <= 0.1 * vocab_size).mean(axis=1),
        }
    )
