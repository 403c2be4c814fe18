"""Whisper's decoder: self attention of decoder layer 0.

Learned absolute positions, a LayerNorm before the attention, a bias on queries and values and none on keys, causal.
Linear layers store their weights [out, in], so they are transposed. Both published implementations leave ε at the
default of torch's LayerNorm, which the config does not repeat.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from detoklens.errors import UnsupportedModelError
from detoklens.weights.families.base import (
    Config,
    NamedTensors,
    head_size,
    refuse_unhandled,
    stated_size,
    whole_number,
)
from detoklens.weights.first_layer import FirstLayer
from detoklens.weights.rest_of_block import RestOfBlock
from detoklens.weights.sources import TensorSource

ATTENTION = "layers.0.self_attn."
PROJECTIONS = (
    "q_proj.weight", "q_proj.bias", "k_proj.weight", "v_proj.weight", "v_proj.bias", "out_proj.weight", "out_proj.bias",
)  # fmt: skip
TORCH_DEFAULT_EPSILON = 1e-5
HANDLED = {
    "d_model",
    "decoder_attention_heads",
    "max_target_positions",
    "attn_implementation",
    "_attn_implementation",
}
IRRELEVANT = {
    "attention_dropout", "encoder_attention_heads", "max_source_positions", "tie_word_embeddings",
    "output_attentions", "_attn_implementation_autoset",
}  # fmt: skip


class Whisper(NamedTensors):
    """Reads the first layer of a Whisper decoder."""

    model_types = ("whisper",)
    prefixes = ("model.decoder.", "decoder.", "")
    tensors = (
        "embed_tokens.weight",
        "embed_positions.weight",
        "layers.0.self_attn_layer_norm.weight",
        "layers.0.self_attn_layer_norm.bias",
        *(ATTENTION + name for name in PROJECTIONS),
    )

    def read_rest(self, *_: Any) -> RestOfBlock:
        raise UnsupportedModelError(
            "whisper: the first block attends to audio between its self attention and its MLP, so the block's output "
            "needs more than a text"
        )

    def read(self, config: Config, source: TensorSource, dtype: np.dtype[Any]) -> FirstLayer:
        refuse_unhandled(
            config, HANDLED, IRRELEVANT
        )  # among them scale_embedding, which implementations read differently
        d, heads = whole_number(config, "d_model"), whole_number(config, "decoder_attention_heads")
        per_head = (heads, head_size(d, heads))
        reader = self.reader(source, dtype)

        def weight(name: str) -> np.ndarray:
            return np.ascontiguousarray(reader.read(f"{ATTENTION}{name}.weight", (d, d)).T)

        def per_head_weight(name: str) -> np.ndarray:
            return weight(name).reshape(d, *per_head)

        def bias(name: str) -> np.ndarray:
            return reader.read(f"{ATTENTION}{name}.bias", (d,)).reshape(per_head)

        return FirstLayer(
            token_embeddings=reader.read("embed_tokens.weight", (stated_size(config, "vocab_size"), d)),
            position_embeddings=reader.read("embed_positions.weight", (stated_size(config, "max_target_positions"), d)),
            norm_gain=reader.read("layers.0.self_attn_layer_norm.weight", (d,)),
            norm_bias=reader.read("layers.0.self_attn_layer_norm.bias", (d,)),
            norm_epsilon=TORCH_DEFAULT_EPSILON,
            query_weight=per_head_weight("q_proj"),
            query_bias=bias("q_proj"),
            key_weight=per_head_weight("k_proj"),
            key_bias=np.zeros(per_head, dtype),
            value_weight=per_head_weight("v_proj"),
            value_bias=bias("v_proj"),
            output_weight=weight("out_proj").reshape(*per_head, d),
            output_bias=reader.read(f"{ATTENTION}out_proj.bias", (d,)),
            attention_scale=per_head[1] ** -0.5,
        )
