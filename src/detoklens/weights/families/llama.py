"""Llama and its relatives: RMSNorm, rotary positions, heads that share keys, a gated MLP, causal."""

from __future__ import annotations

from dataclasses import replace

from detoklens.errors import CheckpointError, UnsupportedModelError, shown
from detoklens.weights.config import (
    ACTIVATIONS,
    Config,
    first_layer_is_local,
    read_flag,
    read_object,
    read_optional_size,
    read_positive,
    read_size,
    read_window,
)
from detoklens.weights.rotary import rope_settings
from detoklens.weights.spec import HeadNorms, Mlp, Number, Projections, RotaryPositions, Spec, Switch, Window, reads

PROJECTIONS = tuple(f"self_attn.{name}_proj" for name in "qkvo")
MLP_WITHOUT_BIAS = Mlp("mlp.up_proj", "mlp.down_proj", "mlp.gate_proj", bias=False, default_activation="silu")
HEAD_NORMS = HeadNorms(("self_attn.q_norm",), ("self_attn.k_norm",))
ATTENTION_BIAS = Switch("attention_bias", default=False)
EXPERTS = "the MLP is a mixture of experts, so the block's output is not computed"


def rope_by_kind(config: Config, is_local: bool, base: float) -> RotaryPositions:
    """RoPE of configs with settings for local and for full layers; `rope_scaling` is that of full layers."""
    own = read_object(read_object(config, "rope_parameters"), "sliding_attention" if is_local else "full_attention")
    scaling = read_object(config, "rope_scaling") if not is_local else {}
    return RotaryPositions(settings={"rope_theta": base} | own | scaling)


LLAMA = Spec(
    models="Llama 2 and 3, TinyLlama, SmolLM, SmolLM2, DeepSeek LLM and Coder",
    special="RMSNorm, heads share keys, no biases",
    model_types=("llama",),
    positions=RotaryPositions(),
    norm_kind="rms",
    projections=Projections(PROJECTIONS, bias=ATTENTION_BIAS),
    mlp=replace(MLP_WITHOUT_BIAS, bias=Switch("mlp_bias", default=False)),
    key_heads="num_key_value_heads",
    head_size="head_dim",
    default_longest=2048,
    epsilon="rms_norm_eps",
    default_epsilon=1e-6,
    ignored=frozenset({"pretraining_tp"}),
)


MISTRAL = replace(
    LLAMA,
    models="Mistral",
    special="as Llama, with a sliding window",
    model_types=("mistral",),
    projections=Projections(PROJECTIONS, bias=False),
    window=Window(),
    mlp=MLP_WITHOUT_BIAS,
    default_key_heads=8,
    default_longest=131_072,
)
MIXTRAL = replace(
    MISTRAL,
    models="Mixtral",
    special="as Mistral; no block output",
    model_types=("mixtral",),
    positions=RotaryPositions(default_base=1e6),
    default_epsilon=1e-5,
    window=Window(default=None),
    mlp=None,
    mlp_refusal=EXPERTS,
)


@reads("use_sliding_window", "sliding_window", "max_window_layers", "layer_types")
def qwen_window(spec: Spec, config: Config) -> Spec:
    """If the window is on, layers from `max_window_layers` have it."""
    if not read_flag(config, "use_sliding_window", False):
        return spec
    first = 0 if config.get("max_window_layers") == 0 else read_optional_size(config, "max_window_layers")
    is_local = first_layer_is_local(config, by_default=first == 0)
    return replace(spec, window=read_window(config) if is_local else None)


QWEN2 = replace(
    LLAMA,
    models="Qwen2, Qwen2.5",
    special="biases on queries, keys and values",
    model_types=("qwen2",),
    projections=Projections(PROJECTIONS, bias=True, output_bias=False),
    mlp=MLP_WITHOUT_BIAS,
    default_key_heads=32,
    default_longest=32_768,
    adapt=qwen_window,
)
QWEN3 = replace(
    QWEN2,
    models="Qwen3",
    special="an RMSNorm on queries and keys",
    model_types=("qwen3",),
    projections=Projections(PROJECTIONS, bias=ATTENTION_BIAS),
    head_norms=HEAD_NORMS,
    default_head_size=128,
)


@reads("use_sliding_window", "sliding_window")
def qwen3_moe_window(spec: Spec, config: Config) -> Spec:
    """If the window is on, every layer has it; older versions of transformers read `max_window_layers`."""
    if not read_flag(config, "use_sliding_window", False):
        return spec
    if config.get("max_window_layers"):
        raise UnsupportedModelError("config.json: max_window_layers is not handled for qwen3_moe; remove it")
    return replace(spec, window=read_window(config))


QWEN3_MOE = replace(
    QWEN3,
    models="Qwen3 with experts",
    special="as Qwen3; no block output",
    model_types=("qwen3_moe",),
    mlp=None,
    mlp_refusal=EXPERTS,
    default_key_heads=4,
    default_head_size=None,
    adapt=qwen3_moe_window,
    ignored=LLAMA.ignored | {"norm_topk_prob", "decoder_sparse_step", "max_window_layers"},  # the experts' and others
)


@reads("sliding_window", "layer_types", "sliding_window_pattern", "rope_local_base_freq")
def gemma3_attention(spec: Spec, config: Config) -> Spec:
    """Gemma 3's local layers have their own rotary base, and no RoPE scaling."""
    is_local = first_layer_is_local(config, by_default=config.get("sliding_window_pattern", 6) != 1)
    key, default = ("rope_local_base_freq", 10_000.0) if is_local else ("rope_theta", 1_000_000.0)
    positions = rope_by_kind(config, is_local, read_positive(config, key, default))
    return replace(spec, positions=positions, window=read_window(config) if is_local else None)


GEMMA = replace(
    LLAMA,
    models="Gemma 1",
    special="embeddings scaled by sqrt(width), gain 1 + w",
    model_types=("gemma",),
    embedding_scales_with_width=True,
    added_gain=1.0,
    mlp=replace(
        MLP_WITHOUT_BIAS,
        default_activation="gelu_pytorch_tanh",
        activations=ACTIVATIONS | {"gelu": "gelu_tanh"},  # its gelu is by tanh
    ),
    default_key_heads=16,
    default_head_size=256,
    default_longest=8192,
    accepted={"use_bidirectional_attention": (False, None)},
)
GEMMA2 = replace(
    GEMMA,
    models="Gemma 2",
    special="as Gemma 1, with capped scores, its own query scale and a window",
    model_types=("gemma2",),
    attention_scale=Number("query_pre_attn_scalar", 256, power=-0.5),
    window=Window(by_layer_types=True),
    softcap=Number("attn_logit_softcapping", 50.0),
    mlp=replace(MLP_WITHOUT_BIAS, activation="hidden_activation", default_activation="gelu_pytorch_tanh"),
    mlp_norms={
        "attention_norm": "post_attention_layernorm",
        "input_norm": "pre_feedforward_layernorm",
        "mlp_norm": "post_feedforward_layernorm",
    },
    default_key_heads=4,
    ignored=LLAMA.ignored | {"final_logit_softcapping"},
)
GEMMA3 = replace(
    GEMMA2,
    models="Gemma 3 (text)",
    special="as Gemma 2, with normed queries and keys instead of the cap, and a rotary base for local layers",
    model_types=("gemma3_text",),
    head_norms=HEAD_NORMS,
    softcap=None,
    default_longest=131_072,
    accepted={**GEMMA.accepted, "attn_logit_softcapping": (None,)},
    adapt=gemma3_attention,
    ignored=GEMMA2.ignored | {"_sliding_window_pattern"},
)


@reads("rope_scaling")
def phi3_rope(spec: Spec, config: Config) -> Spec:
    """RoPE types that read the original length read it from elsewhere: refused."""
    rope = rope_settings(config)
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind in ("llama3", "yarn"):
        raise UnsupportedModelError(f"config.json: RoPE type {shown(kind)} is not computed for phi3")
    return spec


PHI3 = replace(
    LLAMA,
    models="Phi 3, 3.5, 4 with RoPE of type default",
    special="as Llama with joint tensors; part of each head may turn",
    model_types=("phi3",),
    positions=RotaryPositions(is_partial=True),
    projections=Projections(("self_attn.qkv_proj", "self_attn.o_proj"), "stacked", bias=False),
    mlp=Mlp("mlp.gate_up_proj", "mlp.down_proj", gate_in_up=True, bias=False, default_activation="silu"),
    window=Window(default=None),
    default_longest=4096,
    default_epsilon=1e-5,
    adapt=phi3_rope,
    ignored=LLAMA.ignored | {"original_max_position_embeddings"},  # of RoPE types that are refused
)


SEED_OSS = replace(
    LLAMA,
    models="Seed-OSS",
    special="as Llama, with biases on queries, keys and values",
    model_types=("seed_oss",),
    projections=Projections(
        PROJECTIONS,
        bias=Switch("attention_bias", default=True),
        output_bias=Switch("attention_out_bias", default=False),
    ),
    default_key_heads=8,
    default_head_size=128,
    default_longest=524_288,
)
GRANITE = replace(
    LLAMA,
    models="Granite 3",
    special="as Llama, with factors on embeddings, scores and what is added to the stream",
    model_types=("granite",),
    embedding_scale=Number("embedding_multiplier", 1.0),
    attention_scale=Number("attention_multiplier", 1.0),
    residual_scale=Number("residual_multiplier", 1.0),
    ignored=LLAMA.ignored | {"logits_scaling"},
)
OLMO = replace(
    LLAMA,
    models="OLMo 1",
    special="LayerNorm without gain and bias; refused with clipped queries and keys (OLMo 1.7)",
    model_types=("olmo",),
    norm_kind="layer",
    norm_gain=False,
    norm_bias=False,
    mlp=MLP_WITHOUT_BIAS,
    epsilon=1e-5,  # no config states it
    accepted={"clip_qkv": (None,)},
)
OLMO2 = replace(
    LLAMA,
    models="OLMo 2",
    special="no norm before the attention; one RMSNorm on the queries of all heads together, one on the keys",
    model_types=("olmo2",),
    input_norm=None,
    head_norms=replace(HEAD_NORMS, gains="joint"),
    mlp=MLP_WITHOUT_BIAS,
    mlp_norms={"attention_norm": "post_attention_layernorm", "mlp_norm": "post_feedforward_layernorm"},
    default_epsilon=1e-5,
)
OLMO3_BASE = 500_000.0


@reads("sliding_window", "layer_types")
def olmo3_window(spec: Spec, config: Config) -> Spec:
    """Local layers, such as the first one, have a window and no RoPE scaling."""
    is_local, base = first_layer_is_local(config, by_default=True), config.get("rope_theta")
    positions = rope_by_kind(config, is_local, OLMO3_BASE)
    if base not in (None, OLMO3_BASE) and dict(positions.settings or {})["rope_theta"] == OLMO3_BASE:
        raise UnsupportedModelError(
            f"config.json: rope_theta = {shown(base)} is read differently by versions of transformers; state it in "
            "rope_parameters, for sliding_attention and full_attention"
        )
    window = read_window(config) if is_local else None
    return replace(spec, positions=positions, window=window)


OLMO3 = replace(
    OLMO2,
    models="OLMo 3",
    special="as OLMo 2, with a sliding window",
    model_types=("olmo3",),
    adapt=olmo3_window,
)


def refuse_layer_without_positions(config: Config) -> None:
    """`no_rope_layers` has a 1 for each layer with rotary positions."""
    listed, interval = config.get("no_rope_layers"), config.get("no_rope_layer_interval")
    if listed and (not isinstance(listed, list) or listed[0] != 1):
        raise UnsupportedModelError("config.json: no_rope_layers: layer 0 has no positions, which is not handled")
    if not listed and interval is not None and (type(interval) is not int or interval < 2):
        raise UnsupportedModelError(f"config.json: no_rope_layer_interval = {shown(interval)} is not handled")


@reads("use_sliding_window", "layer_types", "no_rope_layers", "no_rope_layer_interval")
def smollm3_window(spec: Spec, config: Config) -> Spec:
    refuse_layer_without_positions(config)
    is_windowed = read_flag(config, "use_sliding_window", False)
    if is_windowed or first_layer_is_local(config, by_default=False):
        raise UnsupportedModelError("config.json: a sliding window is not handled for smollm3; no model uses it")
    return spec


SMOLLM3 = replace(
    LLAMA,
    models="SmolLM3",
    special="as Llama; every fourth layer, not the first, has no positions",
    model_types=("smollm3",),
    positions=RotaryPositions(default_base=2_000_000.0),
    default_key_heads=4,
    default_longest=32_768,
    adapt=smollm3_window,
    ignored=LLAMA.ignored | {"sliding_window"},
)


@reads(
    "no_rope_layers", "no_rope_layer_interval", "layer_types", "attention_chunk_size", "moe_layers",
    "interleave_moe_layer_step",
)  # fmt: skip
def llama4_attention(spec: Spec, config: Config) -> Spec:
    """Layer 0 attends within chunks; a text within the first chunk is attended to as a whole."""
    refuse_layer_without_positions(config)
    kinds = config.get("layer_types") or ["chunked_attention"]
    if not isinstance(kinds, list) or kinds[0] not in ("chunked_attention", "full_attention"):
        raise CheckpointError("config.json: layer_types must begin with chunked_attention or full_attention")
    rope = rope_settings(config)
    if rope.get("rope_type", rope.get("type", "default")) not in ("default", "llama3"):
        raise UnsupportedModelError("config.json: only the RoPE types default and llama3 are handled for llama4_text")
    if kinds[0] == "chunked_attention":
        chunk = read_size(config, "attention_chunk_size") if "attention_chunk_size" in config else 8192
        spec = replace(spec, most_positions=chunk)
    listed, step = config.get("moe_layers"), read_optional_size(config, "interleave_moe_layer_step") or 1
    if (0 in listed) if isinstance(listed, list) else step == 1:
        return replace(spec, mlp_refusal=EXPERTS)
    return spec


LLAMA4 = replace(
    LLAMA,
    models="Llama 4 (text)",
    special="rotary pairs are neighbours; RMSNorm without gain on queries and keys (Scout); texts within one chunk",
    model_types=("llama4_text",),
    mlp_module="feed_forward",
    positions=RotaryPositions(default_base=500_000.0, pairs_are_neighbours=True),
    head_norms=HeadNorms(exist=Switch("use_qk_norm", default=True)),  # after the rotation, which keeps lengths
    mlp=replace(
        MLP_WITHOUT_BIAS,
        up="feed_forward.up_proj",
        down="feed_forward.down_proj",
        gate="feed_forward.gate_proj",
        size=("intermediate_size_mlp",),
    ),
    default_key_heads=8,
    default_head_size=128,
    default_longest=131_072,
    default_epsilon=1e-5,
    adapt=llama4_attention,
    # Of layers without rotary positions.
    ignored=LLAMA.ignored | {"attn_temperature_tuning", "floor_scale", "attn_scale"},
)
MINISTRAL = replace(
    MISTRAL,
    models="Ministral 8B",
    special="as Mistral; layer 0 may have no window",
    model_types=("ministral",),
    window=Window(by_layer_types=True),
)
MINISTRAL3_ROPE = {
    "type": "yarn", "rope_theta": 1e6, "factor": 16.0, "original_max_position_embeddings": 16_384, "beta_fast": 32.0,
    "beta_slow": 1.0, "mscale_all_dim": 1.0, "mscale": 1.0, "llama_4_scaling_beta": 0.1,
}  # fmt: skip


@reads("rope_scaling", "rope_parameters")
def ministral3_positions(spec: Spec, config: Config) -> Spec:
    """Queries beyond the original length are scaled by their position; up to there the factor is 1."""
    stated = rope_settings(config) or MINISTRAL3_ROPE
    rope = {name: value for name, value in stated.items() if name not in ("llama_4_scaling_beta", LONGEST)}
    read_positive(stated, "llama_4_scaling_beta")
    original = read_size(stated, f"original_{LONGEST}")
    return replace(spec, positions=RotaryPositions(settings=rope), most_positions=original)


LONGEST = "max_position_embeddings"
MINISTRAL3 = replace(
    MISTRAL,
    models="Ministral 3 (text)",
    special="as Mistral; texts up to the original length, beyond which queries are scaled by position",
    model_types=("ministral3",),
    window=Window(default=None),
    default_head_size=128,
    default_longest=262_144,
    default_epsilon=1e-5,
    adapt=ministral3_positions,
)
SPECS = (
    LLAMA, LLAMA4, SMOLLM3, MISTRAL, MINISTRAL, MINISTRAL3, MIXTRAL, QWEN2, QWEN3, QWEN3_MOE, GEMMA, GEMMA2, GEMMA3,
    PHI3, SEED_OSS, GRANITE, OLMO, OLMO2, OLMO3,
)  # fmt: skip
