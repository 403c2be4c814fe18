"""A head that was built to join pieces."""

from __future__ import annotations

import numpy as np

from detoklens.measures.words import PieceRanks, SplitWord, piece_ranks, rank_summary, word_pairs
from tests.layers import random_layer


def test_a_head_built_to_join_pieces_has_rank_one_and_a_null_at_chance():
    """Keys equal to the queries' own vectors of the pairs: Tᵉᵉ is largest where key and query belong together."""
    layer, words = joining_layer()
    found = rank_summary(piece_ranks(layer.token_affinity(), word_pairs(words)), layer.vocab_size)
    assert found["median_rank"][0] == 1
    assert found["null_median_share"][0] > 0.3
    assert found["median_rank"][1] > 10


def test_a_vocabulary_below_100_has_no_top_1_percent():
    ranks = np.array([[1, 4, 9, 33]])
    found = rank_summary(PieceRanks(ranks, ranks, ranks), 33)
    assert np.isnan(found["top_1_percent"]).all()
    assert found["top_10_percent"].tolist() == [0.25]


def joining_layer():
    layer = random_layer(n_heads=2, d_head=40, vocab_size=200, seed=3)
    # Token 2n + 1 asks for token 2n: head 0's query of the one is the other's key.
    even = np.arange(0, 200, 2)
    query, key = layer.token_factors(0).query, layer.token_factors(0).key
    query[even + 1] = key[even]
    key /= np.linalg.norm(key, axis=1, keepdims=True)
    key *= layer.token_scale()[:, None]
    return layer, [SplitWord(f"w{n}", (int(n), int(n) + 1)) for n in even]
