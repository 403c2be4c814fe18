"""OPT, BioGPT and XGLM: learned or sinusoidal positions counted from 2, biases, causal.

opt-350m has narrow embeddings, widened by `project_in`, and its norms after the attention and after the MLP.
BioGPT and XGLM scale embeddings by sqrt(width). All leave ε at the default of torch's LayerNorm.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from detoklens.errors import UnsupportedModelError, shown
from detoklens.weights.families.base import (
    Config,
    LayerReader,
    NamedTensors,
    activation_of,
    head_size,
    padding_token,
    refuse_unhandled,
    stated_size,
    transform_rows,
    whole_number,
    yes_or_no,
)
from detoklens.weights.families.projections import plain_mlp, separate, with_parts
from detoklens.weights.first_layer import FirstLayer
from detoklens.weights.rest_of_block import RestOfBlock
from detoklens.weights.sources import TensorSource

TORCH_DEFAULT_EPSILON = 1e-5
LONGEST_WAVES = 1 << 20  # positions of XGLM, whose table no tensor holds; published ones have 2,048
UNUSED_POSITIONS = 2  # rows of the table in front of position 0
BLOCK = "layers.0."
PROJECTIONS = tuple(f"{BLOCK}self_attn.{name}_proj" for name in ("q", "k", "v", "out"))
FIRST_NORM, SECOND_NORM = f"{BLOCK}self_attn_layer_norm", f"{BLOCK}final_layer_norm"
UP, DOWN = f"{BLOCK}fc1", f"{BLOCK}fc2"
HANDLED = {
    "hidden_size", "d_model", "num_attention_heads", "attention_heads", "max_position_embeddings",
    "do_layer_norm_before", "word_embed_proj_dim", "enable_bias", "layer_norm_elementwise_affine", "scale_embedding",
    "add_cross_attention", "attn_implementation", "_attn_implementation",
}  # fmt: skip
IRRELEVANT = {
    "attention_dropout", "attention_probs_dropout_prob", "_remove_final_layer_norm", "tie_word_embeddings",
    "output_attentions", "_attn_implementation_autoset",
    "layer_norm_eps",  # BioGPT's config has it, and none of its norms reads it
}  # fmt: skip


class OPT(NamedTensors):
    """Reads the first layer of an OPT."""

    model_types: tuple[str, ...] = ("opt",)
    prefixes: tuple[str, ...] = ("model.decoder.", "decoder.", "")
    tensors: tuple[str, ...] = ("embed_tokens.weight", "embed_positions.weight", *with_parts(*PROJECTIONS))
    optional: tuple[str, ...] = ("project_in.weight", *with_parts(FIRST_NORM))
    rest = with_parts(SECOND_NORM, UP, DOWN)
    activation = ("activation_function", "relu")
    inner_size = "ffn_dim"
    scales_by_default = False

    def read(self, config: Config, source: TensorSource, dtype: np.dtype[Any]) -> FirstLayer:
        _refuse(config)
        d, heads = _width(config), whole_number(config, "num_attention_heads", "attention_heads")
        reader, norm_first = self.reader(source, dtype), yes_or_no(config, "do_layer_norm_before", True)
        embeddings, zeros = self._embeddings(config, reader, d), np.zeros(d, dtype)
        return FirstLayer(
            token_embeddings=embeddings,
            position_embeddings=self._positions(config, reader, d),
            norm_gain=reader.bias(f"{FIRST_NORM}.weight", d) if norm_first else zeros + dtype.type(1),
            norm_bias=reader.bias(f"{FIRST_NORM}.bias", d) if norm_first else zeros,
            norm_epsilon=TORCH_DEFAULT_EPSILON if norm_first else 0.0,
            **separate(reader, PROJECTIONS, d, heads),
            attention_scale=head_size(d, heads) ** -0.5,
            norm_kind="layer" if norm_first else "none",
        )

    def read_rest(self, config: Config, source: TensorSource, dtype: np.dtype[Any]) -> RestOfBlock:
        if config.get("add_cross_attention"):
            raise UnsupportedModelError("the first block has a cross attention, so its output needs more than a text")
        d, reader = _width(config), self.reader(source, dtype)
        mlp = plain_mlp(
            reader, UP, DOWN, d, whole_number(config, self.inner_size), activation_of(config, *self.activation)
        )
        second = reader.norm(SECOND_NORM, d, "layer", TORCH_DEFAULT_EPSILON)
        if yes_or_no(config, "do_layer_norm_before", True):
            return RestOfBlock(mlp, input_norm=second)
        first = reader.norm(FIRST_NORM, d, "layer", TORCH_DEFAULT_EPSILON)
        return RestOfBlock(mlp, stream_norm=first, output_norm=second)

    def _embeddings(self, config: Config, reader: LayerReader, d: int) -> np.ndarray:
        narrow = stated_size(config, "word_embed_proj_dim") or d
        table = reader.read("embed_tokens.weight", (stated_size(config, "vocab_size"), narrow))
        if yes_or_no(config, "scale_embedding", self.scales_by_default):
            return transform_rows(table, lambda rows: rows * math.sqrt(d))
        if narrow == d:
            return table
        widening = reader.linear("project_in.weight", narrow, d).astype(np.float64)
        return transform_rows(table, lambda rows: rows @ widening)

    def _positions(self, config: Config, reader: LayerReader, d: int) -> np.ndarray:
        longest = stated_size(config, "max_position_embeddings")
        shape = (None if longest is None else longest + UNUSED_POSITIONS, d)
        return reader.read("embed_positions.weight", shape)[UNUSED_POSITIONS:]


class BioGPT(OPT):
    """Reads the first layer of a BioGPT."""

    model_types = ("biogpt",)
    prefixes = ("biogpt.", "")
    activation = ("hidden_act", "gelu")
    inner_size = "intermediate_size"
    scales_by_default = True


class XGLM(OPT):
    """Reads the first layer of an XGLM, whose positions are waves that no tensor holds."""

    model_types = ("xglm",)
    prefixes = ("model.", "")
    tensors = ("embed_tokens.weight", *with_parts(*PROJECTIONS))
    activation = ("activation_function", "gelu")
    scales_by_default = True

    def _positions(self, config: Config, reader: LayerReader, d: int) -> np.ndarray:
        longest, half = whole_number(config, "max_position_embeddings"), d // 2
        if longest > LONGEST_WAVES:
            raise UnsupportedModelError(f"config.json: max_position_embeddings = {longest:,} waves are not computed")
        if half < 2:
            raise UnsupportedModelError(f"config.json: a width of {d} has no waves to count positions with")
        frequencies = np.exp(-np.arange(half) * math.log(10_000) / (half - 1))
        numbers = np.arange(UNUSED_POSITIONS, longest + UNUSED_POSITIONS)
        angles = np.multiply.outer(numbers, frequencies)
        table = np.hstack([np.sin(angles), np.cos(angles), np.zeros((longest, d % 2))])
        table[numbers == padding_token(config, 1)] = 0
        return table.astype(reader.dtype)


def _refuse(config: Config) -> None:
    refuse_unhandled(config, HANDLED, IRRELEVANT)
    for name in ("enable_bias", "layer_norm_elementwise_affine"):
        if config.get(name, True) is not True:
            raise UnsupportedModelError(f"config.json: {name} = {shown(config[name])} is not handled")


def _width(config: Config) -> int:
    return whole_number(config, "hidden_size", "d_model")
