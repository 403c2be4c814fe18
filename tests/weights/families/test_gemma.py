"""Gemma 1, 2 and 3: equal to transformers; scaled embeddings, 1 + w, capped scores, a window, two rotary bases."""

from __future__ import annotations

import json

import pytest

import detoklens
from detoklens.errors import DetokLensError
from tests.weights.families.tiny import assert_equals_real, saved, tiny

SIZES = {
    "hidden_size": 20,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 6,
    "intermediate_size": 19,
    "vocab_size": 23,
    "num_hidden_layers": 2,
    "max_position_embeddings": 30,
    "rms_norm_eps": 0.5,
}


def test_gemma_is_exact(tmp_path):
    assert_equals_real(tiny("gemma", **SIZES))
    assert_equals_real(saved(tiny("gemma", **SIZES, hidden_act="gelu"), tmp_path))


@pytest.mark.parametrize(
    "settings",
    [
        {"sliding_window": 4, "query_pre_attn_scalar": 3, "attn_logit_softcapping": 0.7},
        {"sliding_window": 4, "attn_logit_softcapping": None, "layer_types": ["full_attention", "sliding_attention"]},
    ],
    ids=str,
)
def test_gemma_2_is_exact(settings):
    assert_equals_real(tiny("gemma2", **SIZES | settings))


ROPE = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
    "full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 900.0},
}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"rope_parameters": ROPE},
        {"rope_parameters": ROPE, "layer_types": ["full_attention", "sliding_attention"], "query_pre_attn_scalar": 5},
    ],
    ids=str,
)
def test_gemma_3_is_exact(settings):
    assert_equals_real(tiny("gemma3_text", **SIZES, sliding_window=4, **settings))


def test_settings_as_older_configs_of_gemma_3_have_them_mean_the_same(tmp_path):
    for kinds in (["sliding_attention", "full_attention"], ["full_attention", "sliding_attention"]):
        model = tiny("gemma3_text", **SIZES, sliding_window=4, rope_parameters=ROPE, layer_types=kinds)
        folder = saved(model, tmp_path)
        config = json.loads((folder / "config.json").read_text())
        rope = config.pop("rope_parameters")
        config |= {
            "rope_local_base_freq": rope["sliding_attention"]["rope_theta"],
            "rope_theta": rope["full_attention"].pop("rope_theta"),
            "rope_scaling": rope["full_attention"],
        }
        (folder / "config.json").write_text(json.dumps(config))
        assert detoklens.load(folder).fingerprint == detoklens.load(model).fingerprint
        assert_equals_real(folder)


@pytest.mark.parametrize(
    ("family", "settings", "message"),
    [
        ("gemma3_text", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping = 50.0 is not handled; None is"),
        ("gemma3_text", {"rope_parameters": [1]}, "rope_parameters must be an object"),
        ("gemma2", {"use_bidirectional_attention": True}, "use_bidirectional_attention = True is not handled"),
    ],
)
def test_what_is_not_computed_is_refused_by_name(tmp_path, family, settings, message):
    folder = saved(tiny(family, **SIZES), tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | settings))
    with pytest.raises(DetokLensError, match=message):
        detoklens.load(folder)
