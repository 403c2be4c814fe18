"""With rotary positions, shared keys and norms on queries and keys, the terms add up to the score of a plain formula."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from detoklens.weights.first_layer import FirstLayer
from tests.layers import as_layer, random_first_layer, with_rotary_positions

IDS = [3, 1, 4, 1, 5]


def rotary(norms: str | None) -> FirstLayer:
    """Four heads of four dimensions that share two heads of keys; `norms` are each head's own, or joint (OLMo 2)."""
    layer = with_rotary_positions(random_first_layer(n_heads=4, epsilon=0.1), 2)
    if norms is None:
        return layer
    gains = np.random.default_rng(1).normal(1.0, 0.3, (6, 4))
    return replace(layer, query_norm_gain=gains[:4], key_norm_gain=gains[4:], head_norms_are_joint=norms == "joint")


def plain_vectors(layer: FirstLayer, weight: np.ndarray, bias: np.ndarray, gain: np.ndarray | None) -> np.ndarray:
    """Every token's queries or keys, not rotated, by the model's own steps: nothing is folded."""
    embeddings = layer.token_embeddings
    normed = embeddings / np.sqrt(np.mean(embeddings**2, axis=1, keepdims=True) + layer.norm_epsilon)
    vectors = np.einsum("td,dhk->thk", normed * layer.norm_gain, weight) + bias
    if gain is None:
        return vectors
    over = (1, 2) if layer.head_norms_are_joint else (2,)
    return vectors / np.sqrt(np.mean(vectors**2, axis=over, keepdims=True) + layer.norm_epsilon) * gain


def plain_scores(layer: FirstLayer, queries: list[int], keys: list[int], offset: int) -> np.ndarray:
    """The score [head, query, key] at one offset, before scaling."""
    query = plain_vectors(layer, layer.query_weight, layer.query_bias, layer.query_norm_gain)[queries]
    key = plain_vectors(layer, layer.key_weight, layer.key_bias, layer.key_norm_gain)[keys][:, [0, 0, 1, 1]]
    turn = np.exp(1j * offset * layer.rotary_frequencies)
    rotated = (query[..., :2] + 1j * query[..., 2:]) * turn
    return np.einsum("ihk,jhk->hij", np.concatenate([rotated.real, rotated.imag], axis=2), key)


@pytest.mark.parametrize("norms", [None, "own", "joint"])
@pytest.mark.parametrize("mean", [None, "vocabulary"])
def test_the_terms_add_up_to_the_score(norms: str | None, mean: str | None) -> None:
    first_layer = rotary(norms)
    total = as_layer(first_layer).terms(IDS, mean).total()
    for query in range(len(IDS)):
        for key in range(query + 1):
            expected = plain_scores(first_layer, [IDS[query]], [IDS[key]], query - key)[:, 0, 0]
            np.testing.assert_allclose(total[:, query, key], expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("norms", ["own", "joint"])
def test_behind_a_norm_the_affinity_is_the_whole_score(norms: str) -> None:
    first_layer = rotary(norms)
    everything = list(range(len(first_layer.token_embeddings)))
    found = as_layer(first_layer).affinity(IDS, offset=3)
    np.testing.assert_allclose(found, plain_scores(first_layer, IDS, everything, 3), rtol=1e-9, atol=1e-9)
