"""T^e and Var(e) against frequency, checked with the definitions and with scipy's Spearman."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import linregress, spearmanr

from detoklens.analyses.frequency import (
    embedding_variance,
    frequency_by_head,
    frequency_by_token,
    self_assertion,
    self_assertion_by_token,
    spearman,
)
from detoklens.corpus.counts import Counts
from detoklens.errors import RangeError
from tests.layers import random_layer, sizes


def some_counts(layer, seed=0, seen=0.7):
    """Counts with many ties and some tokens never seen."""
    random = np.random.default_rng(seed)
    tokens = random.integers(1, 9, layer.vocab_size) * (random.random(layer.vocab_size) < seen)
    nothing = np.empty(0, np.uint32)
    return Counts.from_arrays(tokens, nothing, nothing, np.empty(0, np.int64))


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


@pytest.mark.parametrize("unseen", ["published", "include", "exclude"])
def test_correlations_are_scipys(unseen):
    layer = random_layer(vocab_size=300)
    counts = some_counts(layer)
    seen = counts.tokens > 0
    with_unseen = np.ones(300, bool)
    asserting, varying = {
        "published": (with_unseen, seen),
        "include": (with_unseen, with_unseen),
        "exclude": (seen, seen),
    }[unseen]
    by_head = frequency_by_head(layer, counts, unseen=unseen)
    for row in by_head.iter_rows(named=True):
        scores = self_assertion(layer)[row["head"]]
        assert row["tokens"] == asserting.sum()
        assert row["spearman"] == pytest.approx(spearmanr(scores[asserting], counts.tokens[asserting]).statistic)
        line = linregress(np.log10(counts.tokens[asserting] + 1), scores[asserting])
        assert row["slope"] == pytest.approx(line.slope)
        assert (row["minimum"], row["maximum"]) == pytest.approx((scores.min(), scores.max()))
        assert row["standard_deviation"] == pytest.approx(scores.std())
    model = embedding_variance(layer, counts, unseen=unseen).row(0, named=True)
    variance = layer.weights.token_embeddings.var(axis=1)
    assert model["spearman_tokens"] == varying.sum()
    assert model["spearman"] == pytest.approx(spearmanr(variance[varying], counts.tokens[varying]).statistic)
    assert model["seen_tokens"] == seen.sum() < 300


def test_norms_and_covariance_are_those_of_the_definition():
    layer = random_layer(vocab_size=50, epsilon=0.2)
    row = embedding_variance(layer, None).row(0, named=True)
    tokens, positions = layer.weights.token_embeddings, layer.weights.position_embeddings
    norms, scales = np.linalg.norm(tokens, axis=1), np.sqrt(tokens.var(axis=1) + 0.2)
    covariance = [[np.cov(e, p, bias=True)[0, 1] for p in positions] for e in tokens]
    assert row["norm_variance"] == pytest.approx(norms.var())
    assert row["divided_norm_variance"] == pytest.approx((norms / scales).var())
    assert row["mean_variance"] == pytest.approx(tokens.var(axis=1).mean())
    assert row["mean_absolute_covariance"] == pytest.approx(np.abs(covariance).mean())
    assert row["variance_to_covariance"] == pytest.approx(tokens.var(axis=1).mean() / np.abs(covariance).mean())
    by_token = frequency_by_token(layer, None)
    assert by_token["norm"].to_list() == pytest.approx(norms.tolist())
    assert by_token["divided_norm"].to_list() == pytest.approx((norms / scales).tolist())
    assert by_token["variance"].to_list() == pytest.approx(tokens.var(axis=1).tolist())


def test_without_counts_correlations_and_counts_are_null():
    layer = random_layer()
    assert frequency_by_head(layer, None)["spearman"].null_count() == layer.n_heads
    assert frequency_by_head(layer, None)["slope"].null_count() == layer.n_heads
    assert embedding_variance(layer, None)["spearman"].null_count() == 1
    assert frequency_by_token(layer, None)["count"].null_count() == layer.vocab_size


def test_the_long_table_has_every_head_and_token():
    layer = random_layer()
    counts = some_counts(layer)
    found = self_assertion_by_token(layer, counts, heads=[2, 0])
    scores = self_assertion(layer)
    for row in found.sample(20, seed=0).iter_rows(named=True):
        assert row["score"] == pytest.approx(scores[row["head"], row["token_id"]], rel=1e-6)
        assert row["count"] == counts.tokens[row["token_id"]]
    assert found["head"].unique(maintain_order=True).to_list() == [2, 0]


@given(st.lists(st.integers(0, 3), min_size=2, max_size=12), st.data())
def test_a_constant_has_no_correlation_and_ties_share_ranks(counts, data):
    values = data.draw(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=len(counts), max_size=len(counts)))
    found = spearman(np.array(values), np.array(counts))
    if len(set(values)) == 1 or len(set(counts)) == 1:
        assert found is None
    else:
        assert found == pytest.approx(spearmanr(values, counts).statistic)


def test_heads_that_do_not_exist_are_refused():
    for ask in (frequency_by_head, self_assertion_by_token):
        with pytest.raises(RangeError, match="head 4 does not exist"):
            ask(random_layer(), None, heads=[4])
