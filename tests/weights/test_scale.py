"""σ of tokens at positions, against the definition."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from detoklens.errors import RangeError
from detoklens.weights import scale as scale_module
from detoklens.weights.scale import ScaleTable
from tests.layers import as_layer, random_first_layer, random_layer, sizes


def by_definition(first_layer) -> np.ndarray:
    """σ of every (position, token) from the vectors themselves."""
    vectors = first_layer.position_embeddings[:, None] + first_layer.token_embeddings[None]
    return np.sqrt(vectors.var(axis=-1) + first_layer.norm_epsilon)


@settings(max_examples=50)
@given(size=sizes)
def test_blocks_and_means_are_those_of_the_definition(size):
    first_layer = random_first_layer(**size)
    table, expected = ScaleTable(first_layer), by_definition(first_layer)
    np.testing.assert_allclose(np.concatenate([block for _, block in table.position_blocks()]), expected, atol=1e-6)
    np.testing.assert_allclose(table.mean_over_positions(), expected.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(table.mean_over_tokens(), expected.mean(axis=1), atol=1e-6)
    np.testing.assert_allclose(table.token_variance, first_layer.token_embeddings.var(axis=1), atol=1e-9)
    np.testing.assert_allclose(table.position_variance, first_layer.position_embeddings.var(axis=1), atol=1e-9)


def test_many_blocks_are_one(monkeypatch):
    first_layer = random_first_layer()
    monkeypatch.setattr(scale_module, "BLOCK_BYTES", 8 * len(first_layer.token_embeddings) * 3)
    blocks = list(ScaleTable(first_layer).position_blocks())
    assert [block.stop - block.start for block, _ in blocks] == [3, 3, 3, 2]
    np.testing.assert_allclose(np.concatenate([block for _, block in blocks]), by_definition(first_layer), atol=1e-9)


def test_covariance_is_that_of_numpy():
    first_layer = random_first_layer()
    expected = [
        abs(np.cov(token, position, bias=True)[0, 1])
        for token in first_layer.token_embeddings
        for position in first_layer.position_embeddings
    ]
    assert ScaleTable(first_layer).mean_absolute_covariance() == pytest.approx(np.mean(expected))


def test_opposite_embeddings_give_epsilon_not_nan():
    first_layer = random_first_layer(n_heads=1, d_head=3, vocab_size=2, n_positions=2, epsilon=1e-12, dtype="float32")
    first_layer.position_embeddings[:] = -first_layer.token_embeddings
    assert np.isfinite(np.concatenate([block for _, block in ScaleTable(first_layer).position_blocks()])).all()


def test_scale_is_elementwise_and_broadcasts():
    layer = random_layer()
    expected = by_definition(layer.weights)
    np.testing.assert_allclose(layer.scale(3, 7), expected[3, 7])
    np.testing.assert_allclose(layer.scale([0, 1], [5, 6]), [expected[0, 5], expected[1, 6]])
    np.testing.assert_allclose(layer.scale(2, range(23)), expected[2])
    with pytest.raises(RangeError, match="position 11 does not exist; positions go from 0 to 10"):
        layer.scale(11, 0)
    with pytest.raises(RangeError, match="token id 23"):
        layer.scale(0, 23)


def test_a_tokens_scale_is_a_named_choice():
    layer = random_layer()
    expected = by_definition(layer.weights)
    np.testing.assert_allclose(layer.token_scale("mean"), expected.mean(axis=0))
    np.testing.assert_allclose(layer.token_scale(4), expected[4])
    bare = np.sqrt(layer.weights.token_embeddings.var(axis=1) + layer.weights.norm_epsilon)
    np.testing.assert_allclose(layer.token_scale("bare"), bare)


@settings(max_examples=30)
@given(size=sizes)
def test_affinity_is_the_token_term_with_that_scale(size):
    """Tᵉᵉ of a query against the vocabulary, with and without σ, and centred, against the written-out products."""
    first_layer = random_first_layer(**size)
    layer = as_layer(first_layer)
    matrix = np.einsum("hdk,hek->hde", layer.folded.query_weight, layer.folded.key_weight)
    everything = np.einsum("id,hde,je->hij", first_layer.token_embeddings, matrix, first_layer.token_embeddings)
    sigma = layer.token_scale("mean")
    scaled = everything / sigma[:, None] / sigma
    ids = [0, size["vocab_size"] - 1]
    tolerance = 1e-9 * (1 + np.abs(everything).max())
    np.testing.assert_allclose(layer.affinity(ids), scaled[:, ids], atol=tolerance)
    np.testing.assert_allclose(layer.affinity(ids, scale=None), everything[:, ids], atol=tolerance)
    centred = scaled - scaled.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(
        layer.token_affinity(centred=True).scores(np.array(ids)), centred[:, ids], atol=tolerance
    )


def test_the_published_scale_is_the_mean_of_rounded_ones():
    first_layer = random_first_layer()
    layer, expected = as_layer(first_layer), by_definition(first_layer)
    published = layer.token_scale("published")
    np.testing.assert_allclose(published, expected.astype(np.float16).astype(np.float64).mean(axis=0), rtol=1e-4)
    assert np.abs(published - layer.token_scale("mean")).max() > 1e-7
    huge = replace(first_layer, norm_epsilon=1e12)
    assert np.isfinite(as_layer(huge).token_scale("mean")).all()
    with pytest.raises(RangeError, match="too large for float16"):
        as_layer(huge).token_scale("published")
