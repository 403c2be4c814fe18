"""Phi 1, 1.5 and 2: LayerNorm, rotary positions on part of each head, biases; attention and MLP share one norm."""

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
)
from detoklens.weights.families.projections import plain_mlp, separate, with_parts
from detoklens.weights.first_layer import FirstLayer
from detoklens.weights.rest_of_block import RestOfBlock
from detoklens.weights.rotary import DEFAULT_BASE, positive, rope_settings, rotary_frequencies
from detoklens.weights.sources import TensorSource

BLOCK = "layers.0."
PROJECTIONS = (*(f"{BLOCK}self_attn.{name}_proj" for name in "qkv"), f"{BLOCK}self_attn.dense")
UP, DOWN = f"{BLOCK}mlp.fc1", f"{BLOCK}mlp.fc2"
HANDLED = {
    "hidden_size", "num_attention_heads", "num_key_value_heads", "max_position_embeddings", "layer_norm_eps",
    "rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor", "attn_implementation",
    "_attn_implementation",
}  # fmt: skip
IRRELEVANT = {
    "attention_dropout", "embd_pdrop", "tie_word_embeddings", "output_attentions", "_attn_implementation_autoset",
}  # fmt: skip


class Phi(NamedTensors):
    """Reads the first layer of a Phi."""

    model_types = ("phi",)
    prefixes = ("model.", "")
    tensors = ("embed_tokens.weight", *with_parts(f"{BLOCK}input_layernorm", *PROJECTIONS))
    rest = with_parts(f"{BLOCK}input_layernorm", UP, DOWN)

    def read(self, config: Config, source: TensorSource, dtype: np.dtype[Any]) -> FirstLayer:
        refuse_unhandled(config, HANDLED, IRRELEVANT)  # among them qk_layernorm
        d, heads = whole_number(config, "hidden_size"), whole_number(config, "num_attention_heads")
        longest = stated_size(config, "max_position_embeddings") or 2048
        rope, reader = rope_settings(config), self.reader(source, dtype)
        base = positive(rope, "rope_theta", positive(config, "rope_theta", DEFAULT_BASE))
        share = positive(rope, "partial_rotary_factor", positive(config, "partial_rotary_factor", 0.5))
        frequencies, factor = rotary_frequencies(rope, base, int(head_size(d, heads) * share), longest)
        return FirstLayer(
            token_embeddings=reader.read("embed_tokens.weight", (stated_size(config, "vocab_size"), d)),
            position_embeddings=np.zeros((0, d), dtype),
            norm_gain=reader.bias(f"{BLOCK}input_layernorm.weight", d),
            norm_bias=reader.bias(f"{BLOCK}input_layernorm.bias", d),
            norm_epsilon=_epsilon(config),
            **separate(reader, PROJECTIONS, d, heads, key_heads=stated_size(config, "num_key_value_heads")),
            attention_scale=head_size(d, heads) ** -0.5,
            rotary_frequencies=frequencies,
            rotary_factor=factor,
            longest_text=longest,
        )

    def read_rest(self, config: Config, source: TensorSource, dtype: np.dtype[Any]) -> RestOfBlock:
        d, reader = whole_number(config, "hidden_size"), self.reader(source, dtype)
        inner = whole_number(config, "intermediate_size")
        return RestOfBlock(
            plain_mlp(reader, UP, DOWN, d, inner, activation_of(config, "hidden_act", "gelu_new")),
            input_norm=reader.norm(f"{BLOCK}input_layernorm", d, "layer", _epsilon(config)),
            is_parallel=True,
        )


def _epsilon(config: Config) -> float:
    return epsilon_of(config, "layer_norm_eps", 1e-5)
