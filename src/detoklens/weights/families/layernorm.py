"""Decoders with LayerNorm and rotary or ALiBi positions: GPT-NeoX, GPT-J, Phi, StarCoder 2, StableLM, Falcon, Cohere,
BLOOM, MPT.
"""

from __future__ import annotations

from dataclasses import replace

from detoklens.errors import UnsupportedModelError
from detoklens.weights.config import (
    Config,
    first_layer_is_local,
    read_flag,
    read_object,
    read_optional_size,
    read_positive,
    read_window,
    refuse_other_values,
)
from detoklens.weights.families.learned import GPT2, GPT2_MLP
from detoklens.weights.families.llama import ATTENTION_BIAS, HEAD_NORMS, MLP_WITHOUT_BIAS, PROJECTIONS
from detoklens.weights.spec import (
    AlibiPositions,
    HeadNorms,
    Mlp,
    Projections,
    RotaryPositions,
    Spec,
    Switch,
    Window,
    reads,
)

NEOX_MLP = Mlp("mlp.dense_h_to_4h", "mlp.dense_4h_to_h")
GPT_NEOX = Spec(
    models="GPT-NeoX, Pythia",
    special="biases; one tensor for queries, keys and values; attention and MLP in parallel",
    model_types=("gpt_neox",),
    prefixes=("gpt_neox.", ""),
    attention="attention",
    embedding="embed_in",
    positions=RotaryPositions(base="rotary_emb_base", share="rotary_pct", default_share=0.25, is_partial=True),
    projections=Projections(
        ("attention.query_key_value", "attention.dense"), "interleaved", bias=Switch("attention_bias", default=True)
    ),
    mlp=NEOX_MLP,
    is_parallel=Switch("use_parallel_residual", default=True),
    default_longest=2048,
    ignored=frozenset({"rope_theta", "partial_rotary_factor"}),  # copies of the keys above, saved by some versions
)
GPTJ = replace(
    GPT2,
    models="GPT-J",
    special="rotary pairs are neighbours; LayerNorm's bias is the only one; attention and MLP share one norm",
    model_types=("gptj",),
    positions=RotaryPositions(base=None, size="rotary_dim", pairs_are_neighbours=True),
    projections=Projections(tuple(f"attn.{name}_proj" for name in ("q", "k", "v", "out")), bias=False),
    is_conv1d=False,
    mlp=replace(GPT2_MLP, up="mlp.fc_in", down="mlp.fc_out"),
    mlp_norms={"input_norm": "ln_1"},
    scores_are_scaled=True,
    is_parallel=True,
    mlp_accepted={},
    default_epsilon=1e-5,
    ignored=frozenset({"n_ctx", "rotary", "scale_attn_weights"}),  # not read: scores are always scaled
)
PHI = Spec(
    models="Phi 1, 1.5, 2",
    special="biases; attention and MLP share one norm",
    model_types=("phi",),
    positions=RotaryPositions(default_share=0.5, is_partial=True),
    projections=Projections((*(f"self_attn.{name}_proj" for name in "qkv"), "self_attn.dense")),
    mlp=Mlp("mlp.fc1", "mlp.fc2", default_activation="gelu_new"),
    mlp_norms={"input_norm": "input_layernorm"},
    is_parallel=True,
    key_heads="num_key_value_heads",
    default_longest=2048,
)
STARCODER2 = Spec(
    models="StarCoder 2",
    special="biases, heads share keys; may have a sliding window",
    model_types=("starcoder2",),
    positions=RotaryPositions(),
    projections=Projections(PROJECTIONS, bias=Switch("use_bias", default=True)),
    window=Window(default=None),
    mlp=Mlp("mlp.c_fc", "mlp.c_proj", bias=Switch("use_bias", default=True), default_activation="gelu_pytorch_tanh"),
    key_heads="num_key_value_heads",
    default_key_heads=2,
    head_size="head_dim",
    default_longest=4096,
    epsilon="norm_epsilon",
    ignored=frozenset({"embedding_dropout"}),
)


@reads("qk_layernorm")
def stablelm_norms(spec: Spec, config: Config) -> Spec:
    """A parallel block has one norm; queries and keys may have a LayerNorm, with a module for each head."""
    if read_flag(config, "use_parallel_residual", False):
        spec = replace(spec, mlp_norms={"input_norm": "input_layernorm"})
    if not read_flag(config, "qk_layernorm", False):
        return spec
    heads, key_heads = spec.count_heads(config)
    if heads > MOST_HEADS:
        raise UnsupportedModelError(f"config.json: no model has {heads:,} heads; download it again")
    query, key = (
        tuple(f"self_attn.{side}_layernorm.norms.{head}" for head in range(n))
        for side, n in (("q", heads), ("k", key_heads))
    )
    return replace(spec, head_norms=HeadNorms(query, key, "layer", "per head"))


MOST_HEADS = 4096  # published models have up to 128
STABLELM = Spec(
    models="StableLM",
    special="part of each head turns; StableLM 2 12B: norms on queries and keys, attention and MLP in parallel",
    model_types=("stablelm",),
    positions=RotaryPositions(default_share=0.25, is_partial=True),
    projections=Projections(PROJECTIONS, bias=Switch("use_qkv_bias", default=False), output_bias=False),
    mlp=MLP_WITHOUT_BIAS,
    is_parallel=Switch("use_parallel_residual", default=False),
    key_heads="num_key_value_heads",
    default_key_heads=32,
    default_longest=4096,
    adapt=stablelm_norms,
)


@reads("sliding_window", "layer_types", "sliding_window_pattern")
def cohere2_window(spec: Spec, config: Config) -> Spec:
    """Layers with a window have rotary positions; the others have none, which is not computed."""
    window = read_window(config)
    if window is None or not first_layer_is_local(config, by_default=config.get("sliding_window_pattern") != 1):
        raise UnsupportedModelError("config.json: without a sliding window, layer 0 has no positions: not handled")
    return replace(spec, window=window)


COHERE = Spec(
    models="Command R, Aya",
    special="rotary pairs are neighbours; LayerNorm without bias; attention and MLP share one norm",
    model_types=("cohere",),
    positions=RotaryPositions(default_base=500_000.0, pairs_are_neighbours=True),
    norm_bias=False,
    projections=Projections(PROJECTIONS, bias=ATTENTION_BIAS),
    head_norms=replace(HEAD_NORMS, exist=Switch("use_qk_norm", default=False), kind="layer", gains="per head"),
    mlp=MLP_WITHOUT_BIAS,
    mlp_norms={"input_norm": "input_layernorm"},
    is_parallel=True,
    key_heads="num_key_value_heads",
    head_size="head_dim",
    default_longest=8192,
    ignored=frozenset({"logit_scale"}),
)
COHERE2 = replace(
    COHERE,
    models="Command A, Command R7B",
    special="as Command R, with a sliding window",
    model_types=("cohere2",),
    positions=RotaryPositions(pairs_are_neighbours=True),
    head_norms=None,
    head_size=None,  # always the width divided by the number of heads
    adapt=cohere2_window,
    ignored=COHERE.ignored | {"_sliding_window_pattern"},
)


@reads("new_decoder_architecture", "parallel_attn", "num_ln_in_parallel_attn", "multi_query", "num_kv_heads")
def falcon_variant(spec: Spec, config: Config) -> Spec:
    """Falcon 7B has one key for all heads; 40B and 180B have groups of heads and two norms."""
    is_new, is_parallel = read_flag(config, "new_decoder_architecture", False), read_flag(config, "parallel_attn", True)
    norms = read_optional_size(config, "num_ln_in_parallel_attn") or (2 if is_new else 1)
    if norms == 2 != is_new + is_parallel or (is_new and not is_parallel):
        raise UnsupportedModelError(
            f"config.json: num_ln_in_parallel_attn = {norms} with parallel_attn = {is_parallel} and "
            f"new_decoder_architecture = {is_new} is not handled"
        )
    if is_new:
        spec = replace(spec, key_heads="num_kv_heads")
    elif not read_flag(config, "multi_query", True):
        spec = replace(spec, key_heads=None)
    if norms == 2:
        return replace(spec, input_norm="ln_attn", mlp_norms={"input_norm": "ln_mlp"})
    return spec if is_parallel else replace(spec, mlp_norms={"input_norm": "post_attention_layernorm"})


FALCON = Spec(
    models="Falcon 7B, 11B, 40B, 180B",
    special="heads share one key or a key per group; attention and MLP in parallel; refused with ALiBi (Falcon RW)",
    model_types=("falcon",),
    prefixes=("transformer.", ""),
    blocks="h",
    attention="self_attention",
    embedding="word_embeddings",
    positions=RotaryPositions(),
    projections=Projections(
        ("self_attention.query_key_value", "self_attention.dense"), "interleaved", bias=Switch("bias", default=False)
    ),
    mlp=replace(
        NEOX_MLP,
        bias=Switch("bias", default=False),
        activation="activation",
        size=("ffn_hidden_size",),
        default_factor=4,
    ),
    mlp_norms={"input_norm": "input_layernorm"},
    is_parallel=Switch("parallel_attn", default=True),
    width=("hidden_size", "n_embed"),
    key_heads=1,
    default_longest=2048,
    epsilon="layer_norm_epsilon",
    accepted={"alibi": (False,)},  # transformers rounds the slopes and, with eager attention, adds them twice
    adapt=falcon_variant,
)
MPT_ATTENTION = {
    "alibi": (True,), "qk_ln": (False,), "clip_qkv": (None,), "prefix_lm": (False,),
    "attn_type": ("multihead_attention",),
    "alibi_bias_max": (8,),  # some implementations read it, others don't
}  # fmt: skip


@reads("attn_config")
def mpt_attention_scale(spec: Spec, config: Config) -> Spec:
    """MPT keeps its attention's settings in attn_config."""
    settings = read_object(config, "attn_config")
    refuse_other_values(settings, MPT_ATTENTION, "config.json: attn_config.")
    scale = None if settings.get("softmax_scale") is None else read_positive(settings, "softmax_scale")
    return replace(spec, attention_scale=scale)


BLOOM = Spec(
    models="BLOOM",
    special="two norms, one of the embedding alone; one tensor for queries, keys and values",
    model_types=("bloom",),
    prefixes=("transformer.", ""),
    blocks="h",
    attention="self_attention",
    mlp_module="mlp.dense_4h_to_h",
    embedding="word_embeddings",
    embedding_norm="word_embeddings_layernorm",
    positions=AlibiPositions(),
    projections=Projections(("self_attention.query_key_value", "self_attention.dense"), "interleaved"),
    mlp=replace(NEOX_MLP, activation=None, default_activation="gelu_short", size=(), default_factor=4),
    mlp_accepted={"apply_residual_connection_post_layernorm": (False,)},
    width=("hidden_size", "n_embed"),
    heads=("n_head", "num_attention_heads"),
    longest=("seq_length",),
    default_longest=2048,
    epsilon="layer_norm_epsilon",
    ignored=frozenset({
        "offset_alibi", "attention_softmax_in_fp32", "bias_dropout_fusion", "masked_softmax_fusion", "skip_bias_add",
        "skip_bias_add_qkv",
    }),
)  # fmt: skip
MPT = Spec(
    models="MPT",
    special="LayerNorm without bias, no biases",
    model_types=("mpt",),
    prefixes=("transformer.", ""),
    blocks="blocks",
    attention="attn",
    mlp_module="ffn.down_proj",
    embedding="wte",
    positions=AlibiPositions(),
    input_norm="norm_1",
    norm_bias=False,
    projections=Projections(("attn.Wqkv", "attn.out_proj"), "stacked", bias=False),
    mlp=Mlp("ffn.up_proj", "ffn.down_proj", bias=False, activation=None, size=(), default_factor=4),
    mlp_norms={"input_norm": "norm_2"},
    width=("d_model", "hidden_size"),
    heads=("n_heads", "num_attention_heads"),
    longest=("max_seq_len",),
    default_longest=2048,
    epsilon="layer_norm_epsilon",
    accepted={"no_bias": (True,)},
    adapt=mpt_attention_scale,
    ignored=frozenset({"embedding_fraction", "logit_scale", "norm_type", "learned_pos_emb"}),
)
SPECS = (GPT_NEOX, GPTJ, PHI, STARCODER2, STABLELM, COHERE, COHERE2, FALCON, BLOOM, MPT)
