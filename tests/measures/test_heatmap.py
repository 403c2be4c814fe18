"""The self-match score against whole rows, and which tokens are drawn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detoklens.errors import RangeError
from detoklens.measures.heatmap import ROWS, draw_tokens, same_keys_shares, self_match_scores
from detoklens.scores.affinity import Affinity
from tests.layers import random_layer, sizes


@settings(max_examples=40)
@given(sizes, st.booleans())
def test_self_match_is_the_z_score_in_the_whole_row(size, centred):
    layer = random_layer(**(size | {"vocab_size": size["vocab_size"] + 2}))
    affinity = layer.token_affinity("mean", centred)
    scores = affinity.scores(np.arange(layer.vocab_size)).astype(np.float64)
    diagonal = np.diagonal(scores, axis1=1, axis2=2)
    expected = (diagonal - scores.mean(axis=2)) / scores.std(axis=2)
    np.testing.assert_allclose(self_match_scores(affinity), expected, rtol=1e-6, atol=1e-8)
    some = np.arange(layer.vocab_size)[::2]
    np.testing.assert_allclose(self_match_scores(affinity, some), self_match_scores(affinity)[:, some], rtol=1e-9)


def test_heads_share_keys_and_a_large_vocabulary_takes_several_blocks():
    random = np.random.default_rng(0)
    query, key = random.normal(size=(3, 2 * ROWS + 7, 4)), random.normal(size=(2, 2 * ROWS + 7, 4)) + 1
    affinity = Affinity(query, key, (0, 1, 1))
    scores = affinity.scores(np.arange(affinity.vocab_size))
    expected = (np.diagonal(scores, axis1=1, axis2=2) - scores.mean(axis=2)) / scores.std(axis=2)
    np.testing.assert_allclose(self_match_scores(affinity), expected, rtol=1e-9, atol=1e-9)
    shares = scores.mean(axis=1).var(axis=1) / scores.var(axis=2).mean(axis=1)
    np.testing.assert_allclose(same_keys_shares(affinity), shares, rtol=1e-9)


def test_a_constant_row_has_no_self_match():
    layer = random_layer(n_heads=1)
    layer.token_factors(0).key[:] = 0
    assert np.isnan(self_match_scores(layer.token_affinity(None))).all()


@settings(max_examples=40)
@given(sizes)
def test_same_keys_is_the_common_part_of_the_variance_along_the_keys(size):
    affinity = random_layer(**(size | {"vocab_size": size["vocab_size"] + 2})).token_affinity()
    scores = affinity.scores(np.arange(affinity.vocab_size)).astype(np.float64)
    expected = scores.mean(axis=1).var(axis=1) / scores.var(axis=2).mean(axis=1)
    np.testing.assert_allclose(same_keys_shares(affinity), expected, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(same_keys_shares(affinity.centred()), 0, atol=1e-9)


def test_same_keys_is_one_where_all_queries_are_alike_and_unknown_where_keys_are_equal():
    random = np.random.default_rng(0)
    key, query = random.normal(size=(1, 50, 4)), np.ones((1, 50, 4))
    assert same_keys_shares(Affinity(query, key)).tolist() == pytest.approx([1.0])
    assert np.isnan(same_keys_shares(Affinity(query, np.ones((1, 50, 4))))).all()


def test_the_seed_decides_the_tokens():
    first, again, other = (draw_tokens(200, 30, seed) for seed in (1, 1, 2))
    assert first.tolist() == again.tolist() != other.tolist()
    assert first.tolist() == sorted(set(first.tolist()))
    assert len(first) == 30
    assert 0 <= first.min() <= first.max() < 200


@pytest.mark.parametrize("size", [1, 24])
def test_more_tokens_than_there_are_can_not_be_drawn(size):
    with pytest.raises(RangeError, match=f"can't sample {size} tokens from a vocabulary of 23; choose 2 to 23"):
        draw_tokens(23, size, 0)
