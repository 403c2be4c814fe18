"""Tᵉ against its definition, and Spearman's correlation against scipy's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import rankdata, spearmanr

from detoklens.measures.frequency import DRAWS, compare_with_random_biases, mean_ranks, self_assertion, slope, spearman
from tests.layers import random_layer, sizes


@settings(max_examples=40)
@given(sizes)
def test_self_assertion_is_the_term_e_with_the_mean_scale(size):
    """The bias of the query, LayerNorm's own bias included, against C diag(γ) e / σ, σ averaged over positions."""
    layer = random_layer(**size)
    weights = layer.weights
    found = self_assertion(layer)
    for head in range(layer.n_heads):
        bias = weights.norm_bias @ weights.query_weight[:, head] + weights.query_bias[head]
        for token, embedding in enumerate(weights.token_embeddings):
            sigma = np.mean(np.sqrt((embedding + weights.position_embeddings).var(axis=1) + weights.norm_epsilon))
            key = ((embedding - embedding.mean()) * weights.norm_gain) @ weights.key_weight[:, head]
            assert found[head, token] == pytest.approx(bias @ key / sigma, rel=1e-7, abs=1e-12)


def test_self_assertion_agrees_with_the_terms_of_a_text():
    layer = random_layer(n_positions=1)
    for token in range(5):
        assert self_assertion(layer)[:, token] == pytest.approx(layer.terms([token]).e[:, 0])


@given(st.lists(st.integers(0, 3), min_size=2, max_size=12), st.data())
def test_a_constant_has_no_correlation_and_ties_share_ranks(counts, data):
    values = data.draw(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=len(counts), max_size=len(counts)))
    found = spearman(np.array(values), np.array(counts))
    if len(set(values)) == 1 or len(set(counts)) == 1:
        assert found is None
    else:
        assert found == pytest.approx(spearmanr(values, counts).statistic)


@pytest.mark.parametrize("copies", [1, 2])
def test_the_control_is_the_correlation_of_random_biases(copies):
    """With tied keys, too; the range is that of the draws, and symmetric."""
    layer = random_layer(vocab_size=60)
    layer.weights.token_embeddings[:] = np.repeat(layer.weights.token_embeddings[::copies], copies, axis=0)
    counts = np.random.default_rng(1).integers(0, 9, 60)
    found = compare_with_random_biases(layer, self_assertion(layer), counts, np.arange(60), seed=5)
    random, keys = np.random.default_rng(5), layer.token_affinity("mean")
    for head in range(layer.n_heads):
        biases = random.normal(size=(DRAWS, layer.d_head))
        ranks = rankdata(biases @ keys.key_of(head).T, axis=1)
        null = np.corrcoef(ranks, rankdata(counts))[-1, :-1]
        end = np.quantile(np.abs(null), 0.95)
        assert (found.low[head], found.high[head]) == pytest.approx((-end, end), abs=1e-6)


@pytest.mark.parametrize("d_head", [2, 3, 9])
def test_p_is_the_share_of_random_biases_with_a_steeper_slope(d_head):
    """With the same length; Holm's factor is 1 for a single head."""
    layer = random_layer(n_heads=1, d_head=d_head, vocab_size=60, seed=d_head)
    counts = np.random.default_rng(1).integers(0, 9, 60)
    scores = self_assertion(layer)
    found = compare_with_random_biases(layer, scores, counts, np.arange(60))
    directions = np.random.default_rng(2).normal(size=(20_000, d_head))
    directions *= np.linalg.norm(layer.common_part(None).query[0]) / np.linalg.norm(directions, axis=1, keepdims=True)
    null = slope(layer.token_affinity("mean").key_of(0) @ directions.T, counts)
    expected = (np.abs(null) >= abs(slope(scores[0], counts))).mean()
    assert found.p[0] == pytest.approx(expected, abs=0.015)


def test_a_single_dimension_has_no_direction():
    layer = random_layer(n_heads=2, d_head=1, vocab_size=20)
    found = compare_with_random_biases(layer, self_assertion(layer), np.arange(20), np.arange(20))
    assert found.p.tolist() == [1, 1]


def test_a_constant_has_no_slope():
    assert slope(np.array([1.0, 2.0]), np.array([3, 3])) is None
    assert slope(np.array([1.0]), np.array([3])) is None
    assert slope(np.array([1.0, 2.0]), None) is None


@given(st.lists(st.integers(-3, 3) | st.floats(-2, 2), min_size=1, max_size=40))
def test_ties_share_their_mean_rank(values):
    np.testing.assert_array_equal(mean_ranks(np.array(values, float)), rankdata(values))
