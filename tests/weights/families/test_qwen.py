"""Qwen2 (biases) and Qwen3 (norms on queries and keys): equal to transformers."""

from __future__ import annotations

import numpy as np
import pytest

import detoklens
from detoklens.errors import UnsupportedModelError
from tests.weights.families.tiny import IDS, assert_equals_real, saved, tiny

SIZES = {
    "hidden_size": 28,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 19,
    "vocab_size": 23,
    "num_hidden_layers": 3,
    "max_position_embeddings": 30,
    "rms_norm_eps": 0.02,
}


@pytest.mark.parametrize(
    "settings",
    [
        {"hidden_size": 24},
        {"hidden_size": 24, "num_key_value_heads": 4, "rope_theta": 77.0},
        {"hidden_size": 24, "use_sliding_window": True, "sliding_window": 3, "max_window_layers": 0},
        {"hidden_size": 24, "use_sliding_window": True, "sliding_window": 3, "max_window_layers": 2},
        {"hidden_size": 24, "use_sliding_window": False, "sliding_window": 3, "max_window_layers": 0},
    ],
    ids=str,
)
def test_qwen2_is_exact(settings):
    layer = assert_equals_real(tiny("qwen2", **SIZES | settings))
    assert layer.has_biases
    assert layer.terms(IDS).names == ("ee", "e", "ep", "p")


@pytest.mark.parametrize(
    "settings", [{"head_dim": 10}, {"head_dim": 4, "attention_bias": True, "num_key_value_heads": 1}], ids=str
)
def test_qwen3_is_exact(settings):
    layer = assert_equals_real(tiny("qwen3", **SIZES | settings))
    assert not layer.has_biases
    with pytest.raises(UnsupportedModelError, match="so Tᵉᵉ without the division is undefined"):
        layer.token_affinity(scale=None)


@pytest.mark.parametrize(
    "settings", [{"head_dim": 6}, {"hidden_size": 24}, {"head_dim": 6, "use_sliding_window": True, "sliding_window": 3}]
)
def test_the_attention_of_a_mixture_of_experts_is_exact(settings):
    experts = {"num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 5}
    layer = assert_equals_real(tiny("qwen3_moe", **SIZES | experts | settings), block=False)
    with pytest.raises(UnsupportedModelError, match="qwen3_moe: the MLP is a mixture of experts"):
        layer.block_output(IDS)


def test_a_window_that_versions_of_transformers_read_differently_is_refused():
    experts = {"num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 5, "head_dim": 6}
    window = {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 28}
    with pytest.raises(UnsupportedModelError, match="max_window_layers is not handled for qwen3_moe"):
        detoklens.load(tiny("qwen3_moe", **SIZES, **experts, **window))


def test_a_folder_is_read(tmp_path):
    assert_equals_real(saved(tiny("qwen3", **SIZES, head_dim=6), tmp_path))


def test_the_factors_of_normed_queries_are_normed():
    """Each token's query has mean square 1 before the gain, so a factor does not grow with the embedding."""
    layer = detoklens.load(tiny("qwen3", **SIZES | {"rms_norm_eps": 0.0}, head_dim=6), dtype="float64")
    query = layer.token_factors(1).query / layer.weights.query_norm_gain
    np.testing.assert_allclose((query**2).mean(axis=1), 1, atol=1e-12)
