"""Decoders with ALiBi: BLOOM and MPT."""

from __future__ import annotations

from dataclasses import replace

from detoklens.weights.config import Config, read_flag, read_object, read_positive, refuse_other_values
from detoklens.weights.spec import AlibiPositions, Mlp, Projections, Spec

MPT_ATTENTION = {
    "alibi": (True,), "qk_ln": (False,), "clip_qkv": (None,), "prefix_lm": (False,),
    "attn_type": ("multihead_attention",),
    "alibi_bias_max": (8,),  # some implementations read it, others don't
}  # fmt: skip


def bloom_residual(spec: Spec, config: Config) -> Spec:
    """A block that adds to normed vectors is not computed; its attention is."""
    if not read_flag(config, "apply_residual_connection_post_layernorm", False):
        return spec
    reason = "config.json: apply_residual_connection_post_layernorm is not computed, so the block output is not either"
    return replace(spec, mlp_refusal=reason)


def mpt_attention_scale(spec: Spec, config: Config) -> Spec:
    """MPT keeps its attention's settings in attn_config."""
    settings = read_object(config, "attn_config")
    refuse_other_values(settings, MPT_ATTENTION, "attn_config.")
    scale = None if settings.get("softmax_scale") is None else read_positive(settings, "softmax_scale")
    return replace(spec, attention_scale=scale)


BLOOM = Spec(
    models="BLOOM",
    special="two norms, one of the embedding alone; one tensor for queries, keys and values",
    model_types=("bloom",),
    prefixes=("transformer.", ""),
    blocks="h",
    attention="self_attention",
    embedding="word_embeddings",
    embedding_norm="word_embeddings_layernorm",
    positions=AlibiPositions(),
    input_norm="input_layernorm",
    projections=Projections(("self_attention.query_key_value", "self_attention.dense"), "interleaved"),
    mlp=Mlp(
        "mlp.dense_h_to_4h",
        "mlp.dense_4h_to_h",
        activation=None,
        default_activation="gelu_short",
        size=(),
        default_factor=4,
    ),
    mlp_norms={"input_norm": "post_attention_layernorm"},
    width=("hidden_size", "n_embed"),
    heads=("n_head", "num_attention_heads"),
    longest=("seq_length",),
    default_longest=2048,
    epsilon="layer_norm_epsilon",
    adapt=bloom_residual,
    adapt_reads=frozenset({"apply_residual_connection_post_layernorm"}),
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
    adapt_reads=frozenset({"attn_config"}),
    ignored=frozenset({"embedding_fraction", "logit_scale", "norm_type", "learned_pos_emb"}),
)
SPECS = (BLOOM, MPT)
