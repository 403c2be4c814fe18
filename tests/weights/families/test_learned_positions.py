"""OPT, BioGPT, XGLM, GPT-Neo, the first GPT and DistilBERT: equal to transformers."""

from __future__ import annotations

import json

import numpy as np
import pytest

import detoklens
from detoklens.errors import CheckpointError, DetokLensError, UnsupportedModelError
from tests.weights.families.tiny import IDS, assert_equals_real, saved, tiny

OPT = {
    "hidden_size": 21,
    "num_attention_heads": 3,
    "ffn_dim": 19,
    "vocab_size": 23,
    "num_hidden_layers": 2,
    "max_position_embeddings": 30,
}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"activation_function": "gelu"},
        {"do_layer_norm_before": False, "word_embed_proj_dim": 11},  # as opt-350m
        {"word_embed_proj_dim": 33},
    ],
    ids=str,
)
def test_opt_is_exact(tmp_path, settings):
    model = tiny("opt", **OPT | settings)
    layer = assert_equals_real(model)
    assert (layer.n_positions, layer.d_model) == (30, 21)
    assert layer.fingerprint == detoklens.load(saved(model, tmp_path)).fingerprint


def test_biogpt_is_exact(tmp_path):
    sizes = OPT | {"intermediate_size": 19}
    assert_equals_real(tiny("biogpt", **sizes))
    assert_equals_real(saved(tiny("biogpt", **sizes, scale_embedding=False), tmp_path))


@pytest.mark.parametrize("width", [21, 18])
def test_xglm_is_exact(width):
    sizes = {"d_model": width, "attention_heads": 3, "ffn_dim": 19, "vocab_size": 23, "num_layers": 2}
    assert_equals_real(tiny("xglm", **sizes, max_position_embeddings=30))
    assert_equals_real(tiny("xglm", **sizes, max_position_embeddings=30, pad_token_id=4, scale_embedding=False))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pad_token_id": []}, "pad_token_id must be a whole number of at least 0, not"),
        ({"max_position_embeddings": 1 << 30}, "max_position_embeddings = 1,073,741,824 is not supported"),
        ({"d_model": 1 << 30}, "the config asks for"),
    ],
    ids=str,
)
def test_odd_settings_of_xglm_are_one_line(tmp_path, settings, message):
    sizes = {"d_model": 21, "attention_heads": 3, "ffn_dim": 19, "vocab_size": 23, "num_layers": 1}
    folder = saved(tiny("xglm", **sizes, max_position_embeddings=30), tmp_path)
    config = json.loads((folder / "config.json").read_text()) | {"attention_heads": 1} | settings
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(DetokLensError, match=message):
        detoklens.load(folder)


NEO = {
    "hidden_size": 21,
    "num_heads": 3,
    "vocab_size": 23,
    "num_layers": 2,
    "max_position_embeddings": 30,
    "layer_norm_epsilon": 0.02,
    "window_size": 4,
}


@pytest.mark.parametrize("kinds", [["global", "local"], ["local", "global"]], ids=str)
def test_gpt_neo_is_exact(tmp_path, kinds):
    layer = assert_equals_real(saved(tiny("gpt_neo", **NEO, attention_types=[[kinds, 1]]), tmp_path))
    assert layer.attention_scale == 1.0
    seen = (layer.terms(IDS).attention() > 0).sum(axis=2)
    assert seen.max() == (4 if kinds[0] == "local" else len(IDS))


def test_other_kinds_of_gpt_neo_are_refused(tmp_path):
    folder = saved(tiny("gpt_neo", **NEO, attention_types=[[["global", "local"], 1]]), tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"attention_types": [[["strange"], 2]]}))
    with pytest.raises(CheckpointError, match="begins neither with global nor local"):
        detoklens.load(folder)


def test_the_first_gpt_is_exact(tmp_path):
    sizes = {"n_embd": 21, "n_head": 3, "vocab_size": 23, "n_layer": 2, "n_positions": 30, "layer_norm_epsilon": 0.02}
    layer = assert_equals_real(saved(tiny("openai-gpt", **sizes), tmp_path))
    np.testing.assert_array_equal(layer.scale(range(5), range(5)), 1.0)
    np.testing.assert_array_equal(layer.token_scale(), 1.0)


def test_distilbert_is_exact(tmp_path):
    sizes = {"dim": 21, "n_heads": 3, "vocab_size": 23, "n_layers": 2, "max_position_embeddings": 30, "hidden_dim": 19}
    layer = assert_equals_real(saved(tiny("distilbert", **sizes), tmp_path))
    assert not layer.is_causal


def test_learned_positions_are_no_function_of_the_offset():
    layer = detoklens.load(tiny("opt", **OPT))
    with pytest.raises(UnsupportedModelError, match="has learned positions, which are not a function of the offset"):
        layer.kernel([1])
    with pytest.raises(UnsupportedModelError, match="has learned positions, so no mean can be split off"):
        layer.terms(IDS, mean="vocabulary")
    np.testing.assert_array_equal(layer.affinity([3], offset=1), layer.affinity([3], offset=7))
