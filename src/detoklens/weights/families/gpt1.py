"""The first GPT: learned positions, no norm in front of the attention, one after it and one after the MLP; causal."""

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
from detoklens.weights.families.projections import with_parts
from detoklens.weights.first_layer import FirstLayer
from detoklens.weights.rest_of_block import FeedForward, RestOfBlock
from detoklens.weights.sources import TensorSource

MODULES = ("h.0.attn.c_attn", "h.0.attn.c_proj")
# What it calls gelu is the approximation by tanh.
ACTIVATIONS = {"gelu": "gelu_tanh", "relu": "relu", "silu": "silu", "swish": "silu"}
HANDLED = {
    "n_embd", "hidden_size", "n_head", "num_attention_heads", "n_positions", "max_position_embeddings",
    "layer_norm_epsilon", "attn_implementation", "_attn_implementation",
}  # fmt: skip
IRRELEVANT = {
    "attn_pdrop", "embd_pdrop", "tie_word_embeddings", "output_attentions", "_attn_implementation_autoset",
}  # fmt: skip


class GPT1(NamedTensors):
    """Reads the first layer of an OpenAI GPT."""

    model_types = ("openai-gpt",)
    prefixes = ("transformer.", "")
    tensors = ("tokens_embed.weight", "positions_embed.weight", *with_parts(*MODULES))
    rest = with_parts("h.0.ln_1", "h.0.mlp.c_fc", "h.0.mlp.c_proj", "h.0.ln_2")

    def read(self, config: Config, source: TensorSource, dtype: np.dtype[Any]) -> FirstLayer:
        refuse_unhandled(config, HANDLED, IRRELEVANT)
        d, heads = _width(config), whole_number(config, "n_head", "num_attention_heads")
        per_head = (heads, head_size(d, heads))
        reader = self.reader(source, dtype)
        weight = reader.read("h.0.attn.c_attn.weight", (d, 3 * d)).reshape(d, 3, *per_head)
        bias = reader.bias("h.0.attn.c_attn.bias", 3 * d).reshape(3, *per_head)
        longest = stated_size(config, "n_positions", "max_position_embeddings")
        return FirstLayer(
            token_embeddings=reader.read("tokens_embed.weight", (stated_size(config, "vocab_size"), d)),
            position_embeddings=reader.read("positions_embed.weight", (longest, d)),
            norm_gain=np.ones(d, dtype),
            norm_bias=np.zeros(d, dtype),
            norm_epsilon=0.0,
            query_weight=weight[:, 0],
            query_bias=bias[0],
            key_weight=weight[:, 1],
            key_bias=bias[1],
            value_weight=weight[:, 2],
            value_bias=bias[2],
            output_weight=reader.read("h.0.attn.c_proj.weight", (d, d)).reshape(*per_head, d),
            output_bias=reader.bias("h.0.attn.c_proj.bias", d),
            attention_scale=per_head[1] ** -0.5,
            norm_kind="none",
        )

    def read_rest(self, config: Config, source: TensorSource, dtype: np.dtype[Any]) -> RestOfBlock:
        d, reader = _width(config), self.reader(source, dtype)
        epsilon = epsilon_of(config, "layer_norm_epsilon", 1e-5)
        return RestOfBlock(
            FeedForward(
                activation_of(config, "afn", "gelu", ACTIVATIONS),
                reader.read("h.0.mlp.c_fc.weight", (d, 4 * d)),
                reader.bias("h.0.mlp.c_fc.bias", 4 * d),
                reader.read("h.0.mlp.c_proj.weight", (4 * d, d)),
                reader.bias("h.0.mlp.c_proj.bias", d),
            ),
            stream_norm=reader.norm("h.0.ln_1", d, "layer", epsilon),
            output_norm=reader.norm("h.0.ln_2", d, "layer", epsilon),
        )


def _width(config: Config) -> int:
    return whole_number(config, "n_embd", "hidden_size")
