"""BLOOM: no positions but ALiBi's slopes, a LayerNorm on the embeddings and another in front of the attention; causal.

The embeddings' own norm sees one token alone, so what it makes of each token is taken for the token's embedding.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from detoklens.errors import UnsupportedModelError
from detoklens.weights.alibi import alibi_slopes
from detoklens.weights.families.base import (
    Config,
    LayerReader,
    NamedTensors,
    epsilon_of,
    head_size,
    refuse_unhandled,
    stated_size,
    transform_rows,
    whole_number,
    yes_or_no,
)
from detoklens.weights.families.projections import fused, plain_mlp, with_parts
from detoklens.weights.first_layer import FirstLayer
from detoklens.weights.rest_of_block import RestOfBlock
from detoklens.weights.sources import TensorSource

TRAINED_LENGTH = 2048  # where the config does not say it: slopes know no longest text
BLOCK = "h.0."
JOINT, OUTPUT = f"{BLOCK}self_attention.query_key_value", f"{BLOCK}self_attention.dense"
UP, DOWN = f"{BLOCK}mlp.dense_h_to_4h", f"{BLOCK}mlp.dense_4h_to_h"
HANDLED = {
    "hidden_size", "n_embed", "n_head", "num_attention_heads", "layer_norm_epsilon", "seq_length",
    "apply_residual_connection_post_layernorm", "attn_implementation", "_attn_implementation",
}  # fmt: skip
IRRELEVANT = {
    "attention_dropout", "tie_word_embeddings", "output_attentions", "_attn_implementation_autoset", "offset_alibi",
    "attention_softmax_in_fp32", "bias_dropout_fusion", "masked_softmax_fusion", "skip_bias_add", "skip_bias_add_qkv",
}  # fmt: skip


class Bloom(NamedTensors):
    """Reads the first layer of a BLOOM."""

    model_types = ("bloom",)
    prefixes = ("transformer.", "")
    tensors = (
        "word_embeddings.weight",
        *with_parts("word_embeddings_layernorm", f"{BLOCK}input_layernorm", JOINT, OUTPUT),
    )
    rest = with_parts(f"{BLOCK}post_attention_layernorm", UP, DOWN)

    def read(self, config: Config, source: TensorSource, dtype: np.dtype[Any]) -> FirstLayer:
        refuse_unhandled(config, HANDLED, IRRELEVANT)
        d, heads = _width(config), whole_number(config, "n_head", "num_attention_heads")
        reader, epsilon = self.reader(source, dtype), _epsilon(config)
        return FirstLayer(
            token_embeddings=_normed_embeddings(reader, config, d, epsilon),
            position_embeddings=np.zeros((0, d), dtype),
            norm_gain=reader.bias(f"{BLOCK}input_layernorm.weight", d),
            norm_bias=reader.bias(f"{BLOCK}input_layernorm.bias", d),
            norm_epsilon=epsilon,
            **fused(reader, JOINT, OUTPUT, d, heads, by_head=True),
            attention_scale=head_size(d, heads) ** -0.5,
            alibi_slopes=alibi_slopes(heads),
            longest_text=stated_size(config, "seq_length") or TRAINED_LENGTH,
        )

    def read_rest(self, config: Config, source: TensorSource, dtype: np.dtype[Any]) -> RestOfBlock:
        if yes_or_no(config, "apply_residual_connection_post_layernorm", False):
            raise UnsupportedModelError(
                "config.json: apply_residual_connection_post_layernorm is not computed, so there is no block's output"
            )
        d, reader = _width(config), self.reader(source, dtype)
        return RestOfBlock(
            plain_mlp(reader, UP, DOWN, d, 4 * d, "gelu_short"),
            input_norm=reader.norm(f"{BLOCK}post_attention_layernorm", d, "layer", _epsilon(config)),
        )


def _normed_embeddings(reader: LayerReader, config: Config, d: int, epsilon: float) -> np.ndarray:
    table = reader.read("word_embeddings.weight", (stated_size(config, "vocab_size"), d))
    return transform_rows(table, reader.norm("word_embeddings_layernorm", d, "layer", epsilon))


def _width(config: Config) -> int:
    return whole_number(config, "hidden_size", "n_embed")


def _epsilon(config: Config) -> float:
    return epsilon_of(config, "layer_norm_epsilon", 1e-5)
