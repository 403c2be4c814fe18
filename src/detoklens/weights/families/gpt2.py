"""GPT-2 of every size, DistilGPT-2, DialoGPT, Cerebras-GPT, CodeParrot: the paper's case.

Learned absolute positions, a LayerNorm in front of the attention, biases everywhere, causal. Conv1D stores its weights
[in, out], so they are used as they are; queries, keys and values lie side by side in one tensor.

`scale_attn_by_inverse_layer_idx` divides by (layer + 1), which is 1 here. `reorder_and_upcast_attn` changes the
rounding, not the value. `add_cross_attention` adds a second attention after this one. All three leave layer 0's self
attention as it is, so they are accepted.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from detoklens.errors import UnsupportedModelError
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
from detoklens.weights.first_layer import FirstLayer
from detoklens.weights.rest_of_block import FeedForward, RestOfBlock
from detoklens.weights.sources import TensorSource

HANDLED = {
    "n_embd", "hidden_size", "n_head", "num_attention_heads", "n_positions", "max_position_embeddings", "n_ctx",
    "layer_norm_epsilon", "scale_attn_weights", "scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn",
    "add_cross_attention", "attn_implementation", "_attn_implementation",
}  # fmt: skip
IRRELEVANT = {
    "attn_pdrop",
    "embd_pdrop",
    "tie_word_embeddings",
    "output_attentions",
    "_attn_implementation_autoset",
}


class GPT2(NamedTensors):
    """Reads the first layer of a GPT-2."""

    model_types = ("gpt2",)
    prefixes = ("transformer.", "")
    tensors = (
        "wte.weight",
        "wpe.weight",
        "h.0.ln_1.weight",
        "h.0.ln_1.bias",
        "h.0.attn.c_attn.weight",
        "h.0.attn.c_attn.bias",
        "h.0.attn.c_proj.weight",
        "h.0.attn.c_proj.bias",
    )
    rest = (
        "h.0.ln_2.weight",
        "h.0.ln_2.bias",
        "h.0.mlp.c_fc.weight",
        "h.0.mlp.c_fc.bias",
        "h.0.mlp.c_proj.weight",
        "h.0.mlp.c_proj.bias",
    )

    def read(self, config: Config, source: TensorSource, dtype: np.dtype[Any]) -> FirstLayer:
        refuse_unhandled(config, HANDLED, IRRELEVANT)
        d, heads = (
            whole_number(config, "n_embd", "hidden_size"),
            whole_number(config, "n_head", "num_attention_heads"),
        )
        per_head = (heads, head_size(d, heads))
        reader = self.reader(source, dtype)
        joint_weight = reader.read("h.0.attn.c_attn.weight", (d, 3 * d)).reshape(d, 3, *per_head)
        joint_bias = reader.read("h.0.attn.c_attn.bias", (3 * d,)).reshape(3, *per_head)
        return FirstLayer(
            token_embeddings=reader.read("wte.weight", (stated_size(config, "vocab_size"), d)),
            position_embeddings=reader.read(
                "wpe.weight", (stated_size(config, "n_positions", "max_position_embeddings"), d)
            ),
            norm_gain=reader.read("h.0.ln_1.weight", (d,)),
            norm_bias=reader.read("h.0.ln_1.bias", (d,)),
            norm_epsilon=epsilon_of(config, "layer_norm_epsilon"),
            query_weight=joint_weight[:, 0],
            query_bias=joint_bias[0],
            key_weight=joint_weight[:, 1],
            key_bias=joint_bias[1],
            value_weight=joint_weight[:, 2],
            value_bias=joint_bias[2],
            output_weight=reader.read("h.0.attn.c_proj.weight", (d, d)).reshape(*per_head, d),
            output_bias=reader.read("h.0.attn.c_proj.bias", (d,)),
            attention_scale=per_head[1] ** -0.5 if yes_or_no(config, "scale_attn_weights", True) else 1.0,
        )

    def read_rest(self, config: Config, source: TensorSource, dtype: np.dtype[Any]) -> RestOfBlock:
        if yes_or_no(config, "add_cross_attention", False):
            raise UnsupportedModelError("the first block has a cross attention, so its output needs more than a text")
        d, reader = whole_number(config, "n_embd", "hidden_size"), self.reader(source, dtype)
        inner = stated_size(config, "n_inner") or 4 * d
        return RestOfBlock(
            FeedForward(
                activation_of(config, "activation_function", "gelu_new"),
                reader.read("h.0.mlp.c_fc.weight", (d, inner)),
                reader.bias("h.0.mlp.c_fc.bias", inner),
                reader.read("h.0.mlp.c_proj.weight", (inner, d)),
                reader.bias("h.0.mlp.c_proj.bias", d),
            ),
            input_norm=reader.norm("h.0.ln_2", d, "layer", epsilon_of(config, "layer_norm_epsilon")),
        )
