"""A head that was built to join pieces."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detoklens.measures.words import (
    PieceRanks,
    SplitWord,
    behind_best,
    exchange_keys,
    exchange_within,
    null_ratios,
    piece_ranks,
    rank_summary,
    word_pairs,
)
from tests.layers import random_layer


def test_a_head_built_to_join_pieces_has_rank_one_and_a_null_at_chance():
    """Keys equal to the queries' own vectors of the pairs: Tᵉᵉ is largest where key and query belong together."""
    layer, words = joining_layer()
    pairs = word_pairs(words)
    ranked = piece_ranks(layer.token_affinity(), pairs, [pairs.keys % 3])
    found = rank_summary(ranked, pairs.words, layer.vocab_size)
    assert found["median_rank"][0] == 1
    assert min(found["plain_null_median_share"][0], found["class_null_median_share"][0]) > 0.3
    assert found["median_rank"][1] > 10


def test_a_vocabulary_below_100_has_no_top_1_percent():
    ranks = np.array([[1, 4, 9, 33]])
    found = rank_summary(PieceRanks(ranks, ranks, ranks, ranks[None]), "abcd", 33)
    assert np.isnan(found["top_1_percent"]).all()
    assert found["top_10_percent"].tolist() == [0.25]


@pytest.mark.parametrize(("name", "vocab_size"), [("top_1_percent", 100), ("top_10_percent", 10)])
def test_the_smallest_vocabulary_with_a_top_share_has_one_token_in_it(name, vocab_size):
    ranks = np.array([[1, 4, 9, 2]])
    assert rank_summary(PieceRanks(ranks, ranks, ranks, ranks[None]), "abcd", vocab_size)[name].tolist() == [0.25]


def test_knowing_the_class_is_not_knowing_the_piece():
    """Each query finds all keys of its pair's class, so another word's piece of the class is as high as its own."""
    layer = random_layer(n_heads=1, d_head=5, vocab_size=400, seed=3)
    even = np.arange(0, 400, 2)
    classes = even // 2 % 5
    query, key = layer.token_factors(0).query, layer.token_factors(0).key
    key[even] = np.eye(5)[classes] * layer.token_scale()[even, None]
    key[even + 1] = 0
    query[even + 1] = np.eye(5)[classes]
    pairs = word_pairs([SplitWord(f"w{n}", (int(n), int(n) + 1)) for n in even])
    found = rank_summary(piece_ranks(layer.token_affinity(), pairs, [classes]), pairs.words, 400)
    assert found["median_share"][0] < 0.5 * found["plain_null_median_share"][0]
    assert found["null_median_share"][0] == found["class_null_median_share"][0]
    assert found["median_share"][0] == pytest.approx(found["class_null_median_share"][0], rel=0.2)


@pytest.mark.parametrize("n_pairs", [2, 3, 10])
def test_no_query_keeps_its_key_in_the_plain_null(n_pairs):
    given = exchange_keys(np.arange(n_pairs))
    assert sorted(given) == list(range(n_pairs))
    assert (given != np.arange(n_pairs)).all()


@given(st.lists(st.integers(0, 5), min_size=2, max_size=30), st.integers(0, 9))
def test_a_token_is_exchanged_within_its_class_where_another_is_there(tokens, seed):
    tokens = np.array(tokens)
    given = exchange_within(tokens, [tokens % 2], seed)
    for token, other in zip(tokens, given, strict=True):
        same_class = set(tokens[tokens % 2 == token % 2]) - {token}
        assert other in (same_class or set(tokens) - {token} or {token})


def test_the_interval_behind_the_best_is_paired_over_words():
    """Two heads with nearly the same ranks differ little, however widely the ranks vary; a far worse one is behind."""
    random = np.random.default_rng(0)
    best = random.integers(1, 1000, 300)
    ranks = np.stack([best, best + random.integers(-1, 2, 300), best + 500])
    found = behind_best(ranks, [f"w{n // 2}" for n in range(300)], 0, 1000)
    assert (found.low[0], found.value[0], found.high[0]) == (0, 0, 0)
    assert found.low[1] <= 0 <= found.high[1] < 0.01
    assert found.low[2] == found.high[2] == found.value[2] == 0.5
    assert np.isnan(behind_best(ranks[:, :20], [str(n) for n in range(20)], 0, 1000).low).all()


def joining_layer():
    layer = random_layer(n_heads=2, d_head=40, vocab_size=200, seed=3)
    # Token 2n + 1 asks for token 2n: head 0's query of the one is the other's key.
    even = np.arange(0, 200, 2)
    query, key = layer.token_factors(0).query, layer.token_factors(0).key
    query[even + 1] = key[even]
    key /= np.linalg.norm(key, axis=1, keepdims=True)
    key *= layer.token_scale()[:, None]
    return layer, [SplitWord(f"w{n}", (int(n), int(n) + 1)) for n in even]


def test_ratios_to_the_stronger_null_have_intervals_over_words() -> None:
    random = np.random.default_rng(0)
    ranks, plain, *of_class = random.integers(1, 1000, (5, 2, 300))
    ranks //= 4
    words = [f"w{n // 2}" for n in range(300)]
    found = null_ratios(PieceRanks(ranks, ranks.astype(float), plain, np.array(of_class)), words)
    null = np.minimum(np.median(plain, axis=1), np.median(of_class, axis=2).mean(axis=0))
    np.testing.assert_allclose(found.value, np.median(ranks, axis=1) / null)
    assert (found.low < found.value).all()
    assert (found.value < found.high).all()
    assert np.isnan(null_ratios(PieceRanks(ranks, ranks.astype(float), plain, np.array(of_class)), ["a"] * 300)).all()
