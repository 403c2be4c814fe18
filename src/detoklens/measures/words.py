"""Do heads look from a word's later piece to the piece before it? The paper's Table 1, for any list of words.

For a word of the pieces a b c, the pairs are (key a, query b) and (key b, query c): the key's rank among all key tokens
by Tᵉᵉ of the query. A head that joins pieces puts it near the top; at random half of the vocabulary stands above it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int, Num

from detoklens.measures.ranking import pair_ranks
from detoklens.measures.word_list import WordPairs
from detoklens.progress import Watcher
from detoklens.scores.affinity import Affinity


@dataclass(frozen=True)
class PieceRanks:
    """Each head's rank and score of the piece before, and the rank of another word's; NaN with one word."""

    ranks: Int[np.ndarray, "head pair"]
    scores: Float[np.ndarray, "head pair"]
    null_ranks: Num[np.ndarray, "head pair"]


def piece_ranks(affinity: Affinity, pairs: WordPairs, watch: Watcher | None = None) -> PieceRanks:
    """At which rank does each head find the piece before?"""
    keys = np.stack([pairs.keys, dealt_anew(pairs.keys)])
    ranks, scores = pair_ranks(affinity, pairs.queries, keys, watch)
    null_ranks = ranks[1] if len(set(pairs.words)) > 1 else np.full(ranks[1].shape, np.nan)
    return PieceRanks(ranks[0], scores[0], null_ranks)


def dealt_anew(keys: Int[np.ndarray, "pair"]) -> Int[np.ndarray, "pair"]:
    """A key for each query that belongs to another pair: all keys, each once, dealt out by a fixed draw."""
    order = np.random.default_rng(0).permutation(len(keys))
    dealt = np.empty_like(keys)
    dealt[order] = keys[np.roll(order, 1)]
    return dealt


def rank_summary(found: PieceRanks, vocab_size: int) -> dict[str, Float[np.ndarray, "head"]]:
    """How each head does over all pairs: medians, and the shares of pairs near the top."""
    ranks = found.ranks
    median = np.median(ranks, axis=1)
    return {
        "median_rank": median,
        "median_share": median / vocab_size,
        "null_median_share": np.median(found.null_ranks, axis=1) / vocab_size,
        "first": (ranks == 1).mean(axis=1),
        "top_1_percent": _among_the_first(ranks, vocab_size // 100),
        "top_10_percent": _among_the_first(ranks, vocab_size // 10),
    }


def _among_the_first(ranks: Int[np.ndarray, "head pair"], number: int) -> Float[np.ndarray, "head"]:
    """Which share of the ranks is not beyond this number; NaN where the vocabulary is too small to have any there."""
    return (ranks <= number).mean(axis=1) if number else np.full(len(ranks), np.nan)
