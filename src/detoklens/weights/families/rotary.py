"""Decoders with LayerNorm and rotary positions on part of each head: GPT-NeoX, GPT-J, Phi."""

from __future__ import annotations

from detoklens.weights.spec import Mlp, Projections, RotaryPositions, Spec, Switch

GPT_NEOX = Spec(
    models="GPT-NeoX, Pythia",
    special="biases; one tensor for queries, keys and values; attention and MLP in parallel",
    model_types=("gpt_neox",),
    prefixes=("gpt_neox.", ""),
    attention="attention",
    mlp_module="mlp",
    embedding="embed_in",
    positions=RotaryPositions(base="rotary_emb_base", share="rotary_pct", default_share=0.25, is_partial=True),
    input_norm="input_layernorm",
    projections=Projections(
        ("attention.query_key_value", "attention.dense"), "interleaved", bias=Switch("attention_bias", default=True)
    ),
    mlp=Mlp("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
    mlp_norms={"input_norm": "post_attention_layernorm"},
    is_parallel=Switch("use_parallel_residual", default=True),
    default_longest=2048,
    ignored=frozenset({"rope_theta", "partial_rotary_factor"}),  # copies of the keys above, saved by some versions
)
GPTJ = Spec(
    models="GPT-J",
    special="rotary pairs are neighbours; LayerNorm's bias is the only one; attention and MLP share one norm",
    model_types=("gptj",),
    prefixes=("transformer.", ""),
    blocks="h",
    attention="attn",
    mlp_module="mlp",
    embedding="wte",
    positions=RotaryPositions(base=None, size="rotary_dim", pairs_are_neighbours=True),
    input_norm="ln_1",
    projections=Projections(tuple(f"attn.{name}_proj" for name in ("q", "k", "v", "out")), bias=False),
    mlp=Mlp(
        "mlp.fc_in",
        "mlp.fc_out",
        activation="activation_function",
        default_activation="gelu_new",
        size=("n_inner",),
        default_factor=4,
    ),
    mlp_norms={"input_norm": "ln_1"},
    is_parallel=True,
    width=("n_embd", "hidden_size"),
    heads=("n_head", "num_attention_heads"),
    longest=("n_positions", "max_position_embeddings"),
    epsilon="layer_norm_epsilon",
    ignored=frozenset({"n_ctx", "rotary", "scale_attn_weights"}),  # not read: scores are always scaled
)
PHI = Spec(
    models="Phi 1, 1.5, 2",
    special="biases; attention and MLP share one norm",
    model_types=("phi",),
    mlp_module="mlp",
    positions=RotaryPositions(default_share=0.5, is_partial=True),
    input_norm="input_layernorm",
    projections=Projections((*(f"self_attn.{name}_proj" for name in "qkv"), "self_attn.dense")),
    mlp=Mlp("mlp.fc1", "mlp.fc2", default_activation="gelu_new"),
    mlp_norms={"input_norm": "input_layernorm"},
    is_parallel=True,
    key_heads="num_key_value_heads",
    default_longest=2048,
)
SPECS = (GPT_NEOX, GPTJ, PHI)
