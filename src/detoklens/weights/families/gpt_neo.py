"""GPT-Neo and TinyStories: as GPT-2, without biases on queries, keys and values, and scores are not scaled.

Layers of the kind `local` have a sliding window; layer 0 is `global` in the published ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from detoklens.errors import CheckpointError, shown
from detoklens.weights.families.base import (
    Config,
    NamedTensors,
    activation_of,
    epsilon_of,
    refuse_unhandled,
    stated_size,
    whole_number,
)
from detoklens.weights.families.projections import plain_mlp, separate, with_parts
from detoklens.weights.first_layer import FirstLayer
from detoklens.weights.rest_of_block import RestOfBlock
from detoklens.weights.sources import TensorSource

PROJECTIONS = tuple(f"h.0.attn.attention.{name}_proj" for name in ("q", "k", "v", "out"))
UP, DOWN = "h.0.mlp.c_fc", "h.0.mlp.c_proj"
HANDLED = {
    "hidden_size", "num_heads", "num_attention_heads", "max_position_embeddings", "layer_norm_epsilon",
    "attention_types", "attention_layers", "window_size", "attn_implementation", "_attn_implementation",
}  # fmt: skip
IRRELEVANT = {
    "attention_dropout", "embed_dropout", "tie_word_embeddings", "output_attentions", "_attn_implementation_autoset",
}  # fmt: skip


class GPTNeo(NamedTensors):
    """Reads the first layer of a GPT-Neo."""

    model_types = ("gpt_neo",)
    prefixes = ("transformer.", "")
    tensors = (
        "wte.weight",
        "wpe.weight",
        *with_parts("h.0.ln_1"),
        *with_parts(*PROJECTIONS, parts=("weight",)),
        f"{PROJECTIONS[3]}.bias",
    )
    rest = with_parts("h.0.ln_2", UP, DOWN)

    def read(self, config: Config, source: TensorSource, dtype: np.dtype[Any]) -> FirstLayer:
        refuse_unhandled(config, HANDLED, IRRELEVANT)
        d, heads = whole_number(config, "hidden_size"), whole_number(config, "num_heads", "num_attention_heads")
        reader = self.reader(source, dtype)
        return FirstLayer(
            token_embeddings=reader.read("wte.weight", (stated_size(config, "vocab_size"), d)),
            position_embeddings=reader.read("wpe.weight", (stated_size(config, "max_position_embeddings"), d)),
            norm_gain=reader.bias("h.0.ln_1.weight", d),
            norm_bias=reader.bias("h.0.ln_1.bias", d),
            norm_epsilon=_epsilon(config),
            **separate(reader, PROJECTIONS, d, heads, has_bias=(False, False, False, True)),
            attention_scale=1.0,
            window=_window(config),
        )

    def read_rest(self, config: Config, source: TensorSource, dtype: np.dtype[Any]) -> RestOfBlock:
        d, reader = whole_number(config, "hidden_size"), self.reader(source, dtype)
        inner = stated_size(config, "intermediate_size") or 4 * d
        return RestOfBlock(
            plain_mlp(reader, UP, DOWN, d, inner, activation_of(config, "activation_function", "gelu_new")),
            input_norm=reader.norm("h.0.ln_2", d, "layer", _epsilon(config)),
        )


def _epsilon(config: Config) -> float:
    return epsilon_of(config, "layer_norm_epsilon", 1e-5)


def _window(config: Config) -> int | None:
    """The window of layer 0, where it is a local one; the config says `[[[kinds], how often], …]`."""
    match config.get("attention_types"):
        case None | [[["global", *_], *_], *_]:
            return None
        case [[["local", *_], *_], *_]:
            return stated_size(config, "window_size") or 256
        case other:
            raise CheckpointError(f"config.json: attention_types begins neither with global nor local: {shown(other)}")
