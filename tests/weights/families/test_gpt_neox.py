"""GPT-NeoX and Pythia: equal to transformers; partial rotary, biases, one tensor for three, parallel blocks."""

from __future__ import annotations

import pytest

from tests.weights.families.tiny import IDS, assert_equals_real, saved, tiny

SIZES = {
    "hidden_size": 36,
    "num_attention_heads": 3,
    "intermediate_size": 19,
    "vocab_size": 23,
    "num_hidden_layers": 2,
    "max_position_embeddings": 30,
    "layer_norm_eps": 0.02,
}


@pytest.mark.parametrize(
    "settings",
    [
        {"rotary_pct": 0.5},
        {"rotary_pct": 0.34, "rotary_emb_base": 300, "use_parallel_residual": False},
        {"rotary_pct": 1.0, "attention_bias": False, "hidden_act": "gelu_new"},
    ],
    ids=str,
)
def test_gpt_neox_is_exact(settings):
    layer = assert_equals_real(tiny("gpt_neox", **SIZES | settings))
    assert layer.has_biases  # the norm's bias is one, too
    assert layer.terms(IDS).names == ("ee", "e", "ep", "p")


def test_a_folder_is_read(tmp_path):
    assert_equals_real(saved(tiny("gpt_neox", **SIZES, rotary_pct=0.5), tmp_path))
