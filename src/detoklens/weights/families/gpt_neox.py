"""GPT-NeoX and Pythia: LayerNorm, rotary positions on part of each head, biases everywhere, causal.

Queries, keys and values lie side by side within each head of one tensor. Attention and MLP both read the block's input
(`use_parallel_residual`), each through a norm of its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from detoklens.weights.families.base import (
    Config,
    NamedTensors,
    activation_of,
    epsilon_of,
    head_size,
    refuse_unhandled,
    stated_size,
    whole_number,
    yes_or_no,
)
from detoklens.weights.families.projections import fused, plain_mlp, with_parts
from detoklens.weights.first_layer import FirstLayer
from detoklens.weights.rest_of_block import RestOfBlock
from detoklens.weights.rotary import DEFAULT_BASE, positive, rope_settings, rotary_frequencies
from detoklens.weights.sources import TensorSource

JOINT, OUTPUT = "layers.0.attention.query_key_value", "layers.0.attention.dense"
UP, DOWN = "layers.0.mlp.dense_h_to_4h", "layers.0.mlp.dense_4h_to_h"
HANDLED = {
    "hidden_size", "num_attention_heads", "max_position_embeddings", "layer_norm_eps", "rotary_pct", "rotary_emb_base",
    "rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor", "attention_bias", "use_parallel_residual",
    "attn_implementation", "_attn_implementation",
}  # fmt: skip
IRRELEVANT = {"attention_dropout", "tie_word_embeddings", "output_attentions", "_attn_implementation_autoset"}


class GPTNeoX(NamedTensors):
    """Reads the first layer of a GPT-NeoX or Pythia."""

    model_types = ("gpt_neox",)
    prefixes = ("gpt_neox.", "")
    tensors = (
        "embed_in.weight",
        *with_parts("layers.0.input_layernorm"),
        *with_parts(JOINT, OUTPUT, parts=("weight",)),
    )
    optional = with_parts(JOINT, OUTPUT, parts=("bias",))
    rest = with_parts("layers.0.post_attention_layernorm", UP, DOWN)

    def read(self, config: Config, source: TensorSource, dtype: np.dtype[Any]) -> FirstLayer:
        refuse_unhandled(config, HANDLED, IRRELEVANT)
        d, heads = whole_number(config, "hidden_size"), whole_number(config, "num_attention_heads")
        longest = stated_size(config, "max_position_embeddings") or 2048
        rope, reader, epsilon = rope_settings(config), self.reader(source, dtype), _epsilon(config)
        base = positive(rope, "rope_theta", positive(config, "rotary_emb_base", DEFAULT_BASE))
        share = positive(rope, "partial_rotary_factor", positive(config, "rotary_pct", 0.25))
        frequencies, factor = rotary_frequencies(rope, base, int(head_size(d, heads) * share), longest)
        norm = reader.norm("layers.0.input_layernorm", d, "layer", epsilon)
        return FirstLayer(
            token_embeddings=reader.read("embed_in.weight", (stated_size(config, "vocab_size"), d)),
            position_embeddings=np.zeros((0, d), dtype),
            norm_gain=norm.gain,
            norm_bias=reader.bias("layers.0.input_layernorm.bias", d),
            norm_epsilon=epsilon,
            **fused(reader, JOINT, OUTPUT, d, heads, by_head=True, has_bias=yes_or_no(config, "attention_bias", True)),
            attention_scale=head_size(d, heads) ** -0.5,
            rotary_frequencies=frequencies,
            rotary_factor=factor,
            longest_text=longest,
        )

    def read_rest(self, config: Config, source: TensorSource, dtype: np.dtype[Any]) -> RestOfBlock:
        d, reader = whole_number(config, "hidden_size"), self.reader(source, dtype)
        inner = whole_number(config, "intermediate_size")
        return RestOfBlock(
            plain_mlp(reader, UP, DOWN, d, inner, activation_of(config, "hidden_act", "gelu")),
            input_norm=reader.norm("layers.0.post_attention_layernorm", d, "layer", _epsilon(config)),
            is_parallel=yes_or_no(config, "use_parallel_residual", True),
        )


def _epsilon(config: Config) -> float:
    return epsilon_of(config, "layer_norm_eps", 1e-5)
