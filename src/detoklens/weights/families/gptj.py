"""GPT-J: rotary positions on part of each head, pairs being neighbours; no biases; attention and MLP share one norm."""

from __future__ import annotations

from typing import Any

import numpy as np

from detoklens.errors import CheckpointError
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
from detoklens.weights.families.projections import halves_from_neighbours, plain_mlp, separate, with_parts
from detoklens.weights.first_layer import FirstLayer
from detoklens.weights.rest_of_block import RestOfBlock
from detoklens.weights.rotary import DEFAULT_BASE, rotary_frequencies
from detoklens.weights.sources import TensorSource

PROJECTIONS = tuple(f"h.0.attn.{name}_proj" for name in ("q", "k", "v", "out"))
UP, DOWN = "h.0.mlp.fc_in", "h.0.mlp.fc_out"
HANDLED = {
    "n_embd", "hidden_size", "n_head", "num_attention_heads", "n_positions", "max_position_embeddings", "n_ctx",
    "rotary_dim", "layer_norm_epsilon", "attn_implementation", "_attn_implementation",
}  # fmt: skip
IRRELEVANT = {
    "attn_pdrop", "embd_pdrop", "tie_word_embeddings", "output_attentions", "_attn_implementation_autoset", "rotary",
    "scale_attn_weights",  # it is always on
}  # fmt: skip


class GPTJ(NamedTensors):
    """Reads the first layer of a GPT-J."""

    model_types = ("gptj",)
    prefixes = ("transformer.", "")
    tensors = ("wte.weight", *with_parts("h.0.ln_1"), *with_parts(*PROJECTIONS, parts=("weight",)))
    rest = with_parts("h.0.ln_1", UP, DOWN)

    def read(self, config: Config, source: TensorSource, dtype: np.dtype[Any]) -> FirstLayer:
        refuse_unhandled(config, HANDLED, IRRELEVANT)
        d, heads = _width(config), whole_number(config, "n_head", "num_attention_heads")
        d_rotated, d_head = whole_number(config, "rotary_dim"), head_size(d, heads)
        if d_rotated > d_head:
            raise CheckpointError(f"config.json: rotary_dim = {d_rotated} is more than the {d_head} features of a head")
        reader, longest = self.reader(source, dtype), whole_number(config, "n_positions", "max_position_embeddings")
        frequencies, factor = rotary_frequencies({}, DEFAULT_BASE, d_rotated, longest)
        projections = separate(reader, PROJECTIONS, d, heads, has_bias=(False, False, False, False))
        return FirstLayer(
            token_embeddings=reader.read("wte.weight", (stated_size(config, "vocab_size"), d)),
            position_embeddings=np.zeros((0, d), dtype),
            norm_gain=reader.bias("h.0.ln_1.weight", d),
            norm_bias=reader.bias("h.0.ln_1.bias", d),
            norm_epsilon=_epsilon(config),
            **halves_from_neighbours(projections, d_rotated),
            attention_scale=d_head**-0.5,
            rotary_frequencies=frequencies,
            rotary_factor=factor,
            longest_text=longest,
        )

    def read_rest(self, config: Config, source: TensorSource, dtype: np.dtype[Any]) -> RestOfBlock:
        d, reader = _width(config), self.reader(source, dtype)
        inner = stated_size(config, "n_inner") or 4 * d
        return RestOfBlock(
            plain_mlp(reader, UP, DOWN, d, inner, activation_of(config, "activation_function", "gelu_new")),
            input_norm=reader.norm("h.0.ln_1", d, "layer", _epsilon(config)),
            is_parallel=True,
        )


def _width(config: Config) -> int:
    return whole_number(config, "n_embd", "hidden_size")


def _epsilon(config: Config) -> float:
    return epsilon_of(config, "layer_norm_epsilon", 1e-5)
