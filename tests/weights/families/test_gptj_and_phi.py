"""GPT-J (rotary pairs are neighbours) and Phi: equal to transformers; parallel blocks that share one norm."""

from __future__ import annotations

import json

import pytest

import detoklens
from detoklens.errors import UnsupportedModelError
from tests.weights.families.tiny import assert_equals_real, saved, tiny

GPTJ = {"n_embd": 36, "n_head": 3, "vocab_size": 23, "n_layer": 2, "n_positions": 30, "layer_norm_epsilon": 0.02}
PHI = {
    "hidden_size": 48,
    "num_attention_heads": 4,
    "intermediate_size": 19,
    "vocab_size": 23,
    "num_hidden_layers": 2,
    "max_position_embeddings": 30,
    "layer_norm_eps": 0.02,
}


@pytest.mark.parametrize("rotary_dim", [4, 10, 12])
def test_gptj_is_exact(tmp_path, rotary_dim):
    assert_equals_real(saved(tiny("gptj", **GPTJ, rotary_dim=rotary_dim), tmp_path))


@pytest.mark.parametrize(
    "settings", [{}, {"num_key_value_heads": 2, "partial_rotary_factor": 0.34, "rope_theta": 70.0}], ids=str
)
def test_phi_is_exact(tmp_path, settings):
    assert_equals_real(saved(tiny("phi", **PHI | settings), tmp_path))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"num_key_value_heads": 2, "sliding_window": 3, "rms_norm_eps": 0.5},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 70.0, "partial_rotary_factor": 0.5}},
    ],
    ids=str,
)
def test_phi_3_is_exact(tmp_path, settings):
    sizes = {name: size for name, size in PHI.items() if name != "layer_norm_eps"} | {"pad_token_id": 0}
    assert_equals_real(saved(tiny("phi3", **sizes | settings), tmp_path))


def test_part_of_heads_is_turned_only_where_the_family_does_so(tmp_path):
    folder = saved(tiny("llama", hidden_size=32, num_attention_heads=4, vocab_size=9, intermediate_size=8), tmp_path)
    config = json.loads((folder / "config.json").read_text())
    config["rope_parameters"]["partial_rotary_factor"] = 0.5
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnsupportedModelError, match=r"partial_rotary_factor = 0\.5 is not handled for this family"):
        detoklens.load(folder)


def test_phi_with_normed_queries_is_refused():
    with pytest.raises(UnsupportedModelError, match="qk_layernorm = True may change"):
        detoklens.load(tiny("phi", **PHI, qk_layernorm=True))
