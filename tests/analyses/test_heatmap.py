"""The heatmap's tables against T^ee of all pairs, and the self-match score against whole rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detoklens.analyses.heatmap import heatmap
from detoklens.analyses.self_match import self_match_scores
from detoklens.errors import RangeError
from tests.layers import random_layer, sizes


def all_scores(layer, divided, centred=False):
    affinity = layer.token_affinity("mean" if divided else None, centred)
    return affinity.scores(np.arange(layer.vocab_size)).astype(np.float64)


@settings(max_examples=40)
@given(sizes, st.booleans())
def test_self_match_is_the_z_score_in_the_whole_row(size, centred):
    layer = random_layer(**(size | {"vocab_size": size["vocab_size"] + 2}))
    scores = all_scores(layer, True, centred)
    diagonal = np.diagonal(scores, axis1=1, axis2=2)
    expected = (diagonal - scores.mean(axis=2)) / scores.std(axis=2)
    np.testing.assert_allclose(self_match_scores(layer.token_affinity("mean", centred)), expected, rtol=1e-6, atol=1e-8)


def test_a_constant_row_has_no_self_match():
    layer = random_layer(n_heads=1)
    layer.factors.key_token[:] = 0
    assert np.isnan(self_match_scores(layer.token_affinity(None))).all()
    assert heatmap(layer, size=5).by_head["self_match"].null_count() == 2


@pytest.mark.parametrize("divided", [True, False])
@pytest.mark.parametrize("centred", [True, False])
def test_every_column_follows_from_the_scores_of_all_pairs(divided, centred):
    layer = random_layer(n_heads=3, vocab_size=60)
    drawn = heatmap(layer, size=20, seed=4, heads=[2, 0], centred=centred)
    ids = drawn.tokens["token_id"].to_numpy()
    for head in (2, 0):
        whole = all_scores(layer, divided, centred)[head]
        table = whole[np.ix_(ids, ids)]
        diagonal, other = np.diagonal(table), table[~np.eye(20, dtype=bool)]
        row = drawn.by_head.filter(head=head, layer_norm=divided).row(0, named=True)
        own_ranks = np.array([1 + (whole[i] > whole[i, i]).sum() for i in ids])
        expected = {
            "head": head,
            "layer_norm": divided,
            "minimum": table.min(),
            "maximum": table.max(),
            "diagonal_mean": diagonal.mean(),
            "other_mean": other.mean(),
            "diagonal_share": np.mean(table.argmax(axis=1) == np.arange(20)),
            "self_match": np.mean((diagonal - whole[ids].mean(axis=1)) / whole[ids].std(axis=1)),
            "self_first": np.mean(own_ranks == 1),
            "self_median_rank": np.median(own_ranks),
        }
        assert row == pytest.approx(expected, rel=1e-6)
        long = drawn.scores.filter(head=head, layer_norm=divided).sort("query_place", "key_place")
        np.testing.assert_allclose(long["score"].to_numpy().reshape(20, 20), table, rtol=1e-5, atol=1e-5)
        assert long["query_token_id"].to_list() == np.repeat(ids, 20).tolist()
        assert long["key_token_id"].to_list() == np.tile(ids, 20).tolist()


def test_the_seed_decides_the_tokens():
    layer = random_layer(vocab_size=200)
    first, again, other = (heatmap(layer, size=30, seed=seed, heads=[0]).tokens["token_id"] for seed in (1, 1, 2))
    assert first.equals(again)
    assert not first.equals(other)
    assert first.n_unique() == 30
    assert first.is_sorted()


@pytest.mark.parametrize("size", [1, 24])
def test_more_tokens_than_there_are_can_not_be_drawn(size):
    with pytest.raises(RangeError, match=f"{size} tokens were asked for; from this vocabulary 2 to 23 can be drawn"):
        heatmap(random_layer(), size=size)
