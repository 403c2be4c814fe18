"""MPT: no positions but ALiBi's slopes, LayerNorm without bias, no biases, causal."""

from __future__ import annotations

from typing import Any

import numpy as np

from detoklens.errors import CheckpointError, UnsupportedModelError, shown
from detoklens.weights.alibi import alibi_slopes
from detoklens.weights.families.base import (
    Config,
    NamedTensors,
    epsilon_of,
    head_size,
    refuse_unhandled,
    stated_size,
    whole_number,
)
from detoklens.weights.families.projections import fused, plain_mlp, with_parts
from detoklens.weights.first_layer import FirstLayer
from detoklens.weights.norm import Norm
from detoklens.weights.rest_of_block import RestOfBlock
from detoklens.weights.rotary import positive
from detoklens.weights.sources import TensorSource

BLOCK = "blocks.0."
JOINT, OUTPUT = f"{BLOCK}attn.Wqkv", f"{BLOCK}attn.out_proj"
UP, DOWN = f"{BLOCK}ffn.up_proj", f"{BLOCK}ffn.down_proj"
HANDLED = {
    "d_model", "hidden_size", "n_heads", "num_attention_heads", "max_seq_len", "layer_norm_epsilon", "attn_config",
    "no_bias", "attn_implementation", "_attn_implementation",
}  # fmt: skip
IRRELEVANT = {
    "tie_word_embeddings", "output_attentions", "_attn_implementation_autoset", "embedding_fraction", "logit_scale",
    "norm_type", "learned_pos_emb", "resid_pdrop", "emb_pdrop",
}  # fmt: skip
# Settings of attn_config that change scores, with the value that is computed.
COMPUTED = {
    "alibi": True, "qk_ln": False, "clip_qkv": None, "prefix_lm": False, "attn_type": "multihead_attention",
    "alibi_bias_max": 8,  # another is heeded by some implementations and not by others
}  # fmt: skip


class Mpt(NamedTensors):
    """Reads the first layer of an MPT."""

    model_types = ("mpt",)
    prefixes = ("transformer.", "")
    tensors = ("wte.weight", *with_parts(f"{BLOCK}norm_1", JOINT, OUTPUT, parts=("weight",)))
    rest = with_parts(f"{BLOCK}norm_2", UP, DOWN, parts=("weight",))

    def read(self, config: Config, source: TensorSource, dtype: np.dtype[Any]) -> FirstLayer:
        refuse_unhandled(config, HANDLED, IRRELEVANT)
        settings = _attention_settings(config)
        d, heads = _width(config), whole_number(config, "n_heads", "num_attention_heads")
        reader, scale = self.reader(source, dtype), head_size(d, heads) ** -0.5
        return FirstLayer(
            token_embeddings=reader.read("wte.weight", (stated_size(config, "vocab_size"), d)),
            position_embeddings=np.zeros((0, d), dtype),
            norm_gain=reader.bias(f"{BLOCK}norm_1.weight", d),
            norm_bias=reader.bias(f"{BLOCK}norm_1.bias", d, is_there=False),
            norm_epsilon=_epsilon(config),
            **fused(reader, JOINT, OUTPUT, d, heads, by_head=False, has_bias=False),
            attention_scale=positive(settings, "softmax_scale", scale),
            alibi_slopes=alibi_slopes(heads),
            longest_text=stated_size(config, "max_seq_len") or 2048,
        )

    def read_rest(self, config: Config, source: TensorSource, dtype: np.dtype[Any]) -> RestOfBlock:
        d, reader = _width(config), self.reader(source, dtype)
        norm = Norm("layer", reader.bias(f"{BLOCK}norm_2.weight", d), None, _epsilon(config))
        return RestOfBlock(plain_mlp(reader, UP, DOWN, d, 4 * d, "gelu", has_bias=False), input_norm=norm)


def _attention_settings(config: Config) -> dict[str, Any]:
    settings = config.get("attn_config") or {}
    if not isinstance(settings, dict):
        raise CheckpointError(f"config.json: attn_config must be an object, not {shown(settings)}")
    for name, computed in COMPUTED.items():
        if settings.get(name, computed) != computed:
            raise UnsupportedModelError(
                f"config.json: attn_config.{name} = {shown(settings[name])} is not handled; {computed} is"
            )
    if config.get("no_bias", True) is not True:
        raise UnsupportedModelError(f"config.json: no_bias = {shown(config['no_bias'])} is not handled; true is")
    return settings


def _width(config: Config) -> int:
    return whole_number(config, "d_model", "hidden_size")


def _epsilon(config: Config) -> float:
    return epsilon_of(config, "layer_norm_epsilon", 1e-5)
