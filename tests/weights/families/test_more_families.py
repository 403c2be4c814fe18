"""OLMo, Seed-OSS, Granite, Cohere, StableLM, StarCoder, Falcon, ModernBERT, Llama 4, Ministral, SmolLM3: exact."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import detoklens
from detoklens.errors import RangeError, UnsupportedModelError
from detoklens.scores.layer import Layer
from detoklens.weights import families
from detoklens.weights.families import REFUSED, SPEC_OF, spec_of
from detoklens.weights.spec import RotaryPositions
from tests.weights.families.tiny import IDS, assert_equals_real, real, saved, tiny

SIZES: dict[str, Any] = {
    "hidden_size": 24,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "intermediate_size": 17,
    "vocab_size": 29,
    "num_hidden_layers": 2,
    "max_position_embeddings": 40,
    "pad_token_id": 0,
}
RMS = SIZES | {"rms_norm_eps": 0.03}
LAYER = SIZES | {"layer_norm_eps": 0.03}
BIGCODE = {"n_embd": 18, "n_head": 3, "vocab_size": 29, "n_layer": 2, "n_positions": 30, "layer_norm_epsilon": 0.02}
LLAMA4 = RMS | {"head_dim": 6, "intermediate_size_mlp": 13, "num_local_experts": 2}
LLAMA3_ROPE = {
    "rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "rope_theta": 90.0,
    "original_max_position_embeddings": 16,
}  # fmt: skip
YARN = {
    "rope_type": "yarn", "rope_theta": 70.0, "factor": 2.0, "original_max_position_embeddings": 20, "beta_fast": 3.0,
    "llama_4_scaling_beta": 0.3,
}  # fmt: skip


@pytest.mark.parametrize(
    ("model_type", "settings"),
    [
        ("olmo", SIZES | {"attention_bias": True, "rope_theta": 77.0}),
        ("olmo2", RMS),
        ("olmo2", RMS | {"attention_bias": True, "num_key_value_heads": 6}),
        ("olmo3", RMS | {"sliding_window": 3}),
        ("olmo3", RMS | {"sliding_window": 3, "layer_types": ["full_attention", "sliding_attention"]}),
        (
            "olmo3",
            RMS | {"layer_types": ["full_attention"] * 2, "rope_scaling": {"rope_type": "linear", "factor": 2.0}},
        ),
        ("seed_oss", RMS | {"head_dim": 6, "rope_theta": 60.0}),
        ("seed_oss", RMS | {"head_dim": 6, "attention_bias": False, "attention_out_bias": True, "mlp_bias": True}),
        ("granite", RMS | {"embedding_multiplier": 2.5, "attention_multiplier": 0.4, "residual_multiplier": 0.3}),
        ("granite", RMS | {"attention_bias": True, "mlp_bias": True}),
        ("cohere", LAYER),
        ("cohere", LAYER | {"use_qk_norm": True, "attention_bias": True, "rope_theta": 50.0}),
        ("cohere2", LAYER | {"sliding_window": 3}),
        ("stablelm", LAYER | {"hidden_size": 48, "use_qkv_bias": True}),
        ("stablelm", LAYER | {"hidden_size": 48, "qk_layernorm": True, "use_parallel_residual": True}),
        ("starcoder2", SIZES | {"norm_epsilon": 0.04, "sliding_window": 4}),
        ("starcoder2", SIZES | {"norm_epsilon": 0.04, "use_bias": False}),
        ("falcon", SIZES | {"layer_norm_epsilon": 0.02, "bias": True}),
        ("falcon", SIZES | {"new_decoder_architecture": True, "num_kv_heads": 3}),
        ("falcon", SIZES | {"new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1}),
        ("falcon", SIZES | {"multi_query": False, "parallel_attn": False, "bias": True}),
        ("gpt_bigcode", BIGCODE),
        ("gpt_bigcode", BIGCODE | {"multi_query": False, "scale_attn_weights": False}),
        ("modernbert", SIZES | {"norm_eps": 0.02}),
        ("modernbert", SIZES | {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}),
        ("modernbert", SIZES | {"norm_bias": True, "attention_bias": True, "mlp_bias": True, "global_rope_theta": 9.0}),
        ("llama4_text", LLAMA4 | {"interleave_moe_layer_step": 2}),
        ("llama4_text", LLAMA4 | {"interleave_moe_layer_step": 2, "use_qk_norm": False, "rope_scaling": LLAMA3_ROPE}),
        ("smollm3", RMS | {"rope_theta": 60.0}),
        ("ministral", RMS | {"head_dim": 6, "sliding_window": 3}),
        ("ministral", RMS | {"head_dim": 6, "layer_types": ["full_attention", "sliding_attention"]}),
        ("ministral3", RMS | {"head_dim": 6, "rope_parameters": YARN}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_it_is_exact(model_type: str, settings: dict[str, Any]) -> None:
    assert_equals_real(tiny(model_type, **settings))


def test_experts_in_layer_0_leave_the_attention_exact_and_refuse_the_block() -> None:
    layer = assert_equals_real(tiny("llama4_text", **LLAMA4), block=False)
    with pytest.raises(UnsupportedModelError, match="mixture of experts"):
        layer.block_output(IDS)


def test_a_folder_is_read_as_the_model_in_memory(tmp_path) -> None:
    assert_equals_real(saved(tiny("olmo2", **RMS), tmp_path / "olmo2"))
    assert_equals_real(
        saved(tiny("stablelm", **LAYER | {"hidden_size": 48, "qk_layernorm": True}), tmp_path / "stablelm")
    )


@pytest.mark.parametrize("model_type", ["olmo2", "cohere"])
def test_factors_of_the_vocabulary_are_those_of_the_text(model_type: str) -> None:
    """With a joint norm, the factor of one head depends on all heads."""
    settings = RMS if model_type == "olmo2" else LAYER | {"use_qk_norm": True}
    layer = detoklens.load(tiny(model_type, **settings), dtype="float64")
    terms = layer.terms(IDS)
    scores = layer.affinity([IDS[-1]], offset=1)[:, 0, IDS[-2]]
    np.testing.assert_allclose(scores, terms["ee"][:, -1, -2], atol=1e-12)
    some = layer.token_affinity(heads=[4, 1]).scores(np.array([IDS[-1]]))[:, 0]
    np.testing.assert_allclose(some, layer.affinity([IDS[-1]])[[4, 1], 0], atol=1e-12)


@pytest.mark.parametrize(
    ("model_type", "settings", "longest"),
    [
        ("llama4_text", LLAMA4 | {"attention_chunk_size": 7}, 7),
        ("ministral3", RMS | {"head_dim": 6, "rope_parameters": YARN | {"original_max_position_embeddings": 6}}, 6),
    ],
)
def test_texts_that_are_attended_to_in_another_way_are_refused(model_type, settings, longest) -> None:
    layer = assert_equals_real(tiny(model_type, **settings), IDS[:longest], block=False)
    with pytest.raises(RangeError, match=f"{longest}"):
        layer.terms([*IDS[:longest], 2])


@pytest.mark.parametrize(
    ("model_type", "settings", "reason"),
    [
        ("olmo", {"clip_qkv": 8.0}, "clip_qkv = 8.0 is not handled"),
        ("olmo3", {"rope_theta": 10_000.0}, "rope_theta = 10000.0 is read differently"),
        ("falcon", {"alibi": True}, "alibi = True is not handled"),
        ("falcon", {"num_ln_in_parallel_attn": 2}, "num_ln_in_parallel_attn = 2 with parallel_attn = True"),
        ("falcon", {"new_decoder_architecture": True, "parallel_attn": False}, "is not handled"),
        ("cohere2", {"layer_types": ["full_attention"]}, "layer 0 has no positions"),
        ("cohere2", {"sliding_window": None}, "layer 0 has no positions"),
        ("modernbert", {"layer_types": ["sliding_attention"]}, "a window in layer 0 of an encoder"),
        ("llama4_text", {"no_rope_layers": [0, 1]}, "layer 0 has no positions"),
        ("llama4_text", {"rope_scaling": YARN}, "only the RoPE types default and llama3"),
        ("smollm3", {"no_rope_layer_interval": 1}, "no_rope_layer_interval = 1 is not handled"),
        ("smollm3", {"use_sliding_window": True}, "a sliding window is not handled for smollm3"),
        ("stablelm", {"qk_layernorm": True, "num_attention_heads": 10**6}, "no model has 1,000,000 heads"),
    ],
)
def test_what_is_not_computed_is_refused_by_name(model_type: str, settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(UnsupportedModelError, match=reason):
        spec_of({"model_type": model_type} | settings)


@pytest.mark.parametrize("model_type", REFUSED)
def test_architectures_that_cannot_be_exact_are_refused_with_the_reason(model_type: str) -> None:
    assert model_type not in SPEC_OF
    with pytest.raises(UnsupportedModelError, match=f"'{model_type}' is not supported: its"):
        spec_of({"model_type": model_type})


def is_noticed(model: Any, layer: Any) -> bool:
    theirs = real(model, layer, IDS, "float64")
    attention = np.abs(layer.terms(IDS).attention() - theirs.attention).max()
    return max(attention, np.abs(layer.block_output(IDS) - theirs.block).max()) > 1e-3


@pytest.mark.parametrize(
    ("model_type", "settings", "changes"),
    [
        ("olmo", SIZES, {"norm_kind": "rms"}),
        ("cohere", LAYER, {"positions": RotaryPositions(default_base=500_000.0)}),
        ("granite", RMS | {"residual_multiplier": 0.3}, {"residual_scale": 1.0}),
    ],
    ids=["a norm that centres", "rotary pairs", "the factor on what is added"],
)
def test_what_is_easily_got_wrong_is_noticed(monkeypatch, model_type, settings, changes) -> None:
    monkeypatch.setitem(families.SPEC_OF, model_type, replace(SPEC_OF[model_type], **changes))
    model = tiny(model_type, **settings)
    assert is_noticed(model, detoklens.load(model, dtype="float64"))


def test_a_norm_for_each_head_instead_of_one_for_all_is_noticed() -> None:
    model = tiny("olmo2", **RMS)
    layer = detoklens.load(model, dtype="float64")
    assert not is_noticed(model, layer)
    apart = replace(layer.weights, head_norms_are_joint=False)
    assert is_noticed(model, Layer(replace(layer.checkpoint, first_layer=apart)))
