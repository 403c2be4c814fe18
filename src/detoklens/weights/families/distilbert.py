"""DistilBERT: a BERT without token types, under names of its own."""

from __future__ import annotations

from typing import Any

import numpy as np

from detoklens.weights.families.base import (
    Config,
    NamedTensors,
    activation_of,
    head_size,
    refuse_unhandled,
    stated_size,
    whole_number,
)
from detoklens.weights.families.projections import plain_mlp, separate, with_parts
from detoklens.weights.first_layer import FirstLayer
from detoklens.weights.rest_of_block import RestOfBlock
from detoklens.weights.sources import TensorSource

EPSILON = 1e-12  # the config does not repeat it
BLOCK = "transformer.layer.0."
PROJECTIONS = tuple(f"{BLOCK}attention.{name}_lin" for name in ("q", "k", "v", "out"))
UP, DOWN = f"{BLOCK}ffn.lin1", f"{BLOCK}ffn.lin2"
HANDLED = {"dim", "hidden_size", "n_heads", "max_position_embeddings", "attn_implementation", "_attn_implementation"}
IRRELEVANT = {
    "attention_dropout", "tie_word_embeddings", "output_attentions", "_attn_implementation_autoset",
    "sinusoidal_pos_embds",  # says how the table began; the table is stored
}  # fmt: skip


class DistilBert(NamedTensors):
    """Reads the first layer of a DistilBERT."""

    model_types = ("distilbert",)
    prefixes = ("distilbert.", "")
    tensors = (
        "embeddings.word_embeddings.weight",
        "embeddings.position_embeddings.weight",
        *with_parts("embeddings.LayerNorm", *PROJECTIONS),
    )
    rest = with_parts(f"{BLOCK}sa_layer_norm", UP, DOWN, f"{BLOCK}output_layer_norm")

    def read(self, config: Config, source: TensorSource, dtype: np.dtype[Any]) -> FirstLayer:
        refuse_unhandled(config, HANDLED, IRRELEVANT)
        d, heads = _width(config), whole_number(config, "n_heads", "num_attention_heads")
        reader, longest = self.reader(source, dtype), stated_size(config, "max_position_embeddings")
        return FirstLayer(
            token_embeddings=reader.read("embeddings.word_embeddings.weight", (stated_size(config, "vocab_size"), d)),
            position_embeddings=reader.read("embeddings.position_embeddings.weight", (longest, d)),
            norm_gain=reader.bias("embeddings.LayerNorm.weight", d),
            norm_bias=reader.bias("embeddings.LayerNorm.bias", d),
            norm_epsilon=EPSILON,
            **separate(reader, PROJECTIONS, d, heads),
            attention_scale=head_size(d, heads) ** -0.5,
            norm_enters_stream=True,
            is_causal=False,
        )

    def read_rest(self, config: Config, source: TensorSource, dtype: np.dtype[Any]) -> RestOfBlock:
        d, reader = _width(config), self.reader(source, dtype)
        inner = whole_number(config, "hidden_dim")
        return RestOfBlock(
            plain_mlp(reader, UP, DOWN, d, inner, activation_of(config, "activation", "gelu")),
            stream_norm=reader.norm(f"{BLOCK}sa_layer_norm", d, "layer", EPSILON),
            output_norm=reader.norm(f"{BLOCK}output_layer_norm", d, "layer", EPSILON),
        )


def _width(config: Config) -> int:
    return whole_number(config, "dim", "hidden_size")
