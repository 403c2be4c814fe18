"""What Llama, Mistral, Qwen and Gemma have in common: RMSNorm, rotary positions, shared keys, a gated MLP.

A family says in a `LlamaLike` what it does differently; the tensors have the same names in all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from detoklens.errors import CheckpointError, UnsupportedModelError
from detoklens.weights.families.base import (
    Config,
    LayerReader,
    activation_of,
    epsilon_of,
    head_size,
    stated_size,
    transform_rows,
    whole_number,
)
from detoklens.weights.first_layer import FirstLayer
from detoklens.weights.norm import Norm
from detoklens.weights.rest_of_block import FeedForward, RestOfBlock
from detoklens.weights.rotary import DEFAULT_BASE, Rope, positive, rope_settings, rotary_frequencies

PREFIXES = ("model.", "")
ATTENTION = "layers.0.self_attn."
TENSORS = (
    "embed_tokens.weight",
    "layers.0.input_layernorm.weight",
    *(f"{ATTENTION}{name}_proj.weight" for name in "qkvo"),
)
BIASES = tuple(f"{ATTENTION}{name}_proj.bias" for name in "qkvo")
HEAD_NORMS = (f"{ATTENTION}q_norm.weight", f"{ATTENTION}k_norm.weight")
REST = (
    "layers.0.post_attention_layernorm.weight",
    *(f"layers.0.mlp.{name}_proj.weight" for name in ("gate", "up", "down")),
)
MLP_BIASES = tuple(f"layers.0.mlp.{name}_proj.bias" for name in ("gate", "up", "down"))
HANDLED = {
    "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "max_position_embeddings", "rms_norm_eps",
    "rope_theta", "rope_scaling", "rope_parameters", "attention_bias", "mlp_bias", "attn_implementation",
    "_attn_implementation",
}  # fmt: skip
IRRELEVANT = {
    "attention_dropout", "tie_word_embeddings", "output_attentions", "_attn_implementation_autoset", "pretraining_tp",
}  # fmt: skip
DEFAULT_EPSILON = 1e-6


@dataclass(frozen=True)
class LlamaLike:
    """Where a family leaves Llama's way; `d_head` is its own default, None being width / heads."""

    config: Config
    reader: LayerReader
    query_key_value_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    d_head: int | None = None
    added_gain: float = 0.0
    embedding_scale: float = 1.0
    attention_scale: float | None = None
    has_head_norms: bool = False
    window: int | None = None
    softcap: float | None = None
    is_causal: bool = True
    rope: dict[str, Any] | None = None
    default_length: int | None = None
    may_turn_part_of_heads: bool = False

    @property
    def width(self) -> int:
        return whole_number(self.config, "hidden_size")

    @property
    def epsilon(self) -> float:
        return epsilon_of(self.config, "rms_norm_eps", DEFAULT_EPSILON)

    def sizes(self) -> tuple[int, int, int]:
        """Heads, heads with keys of their own, features of a head."""
        heads = whole_number(self.config, "num_attention_heads")
        key_heads = stated_size(self.config, "num_key_value_heads") or heads
        if heads % key_heads:
            raise CheckpointError(f"config.json: {key_heads} key heads do not divide the {heads} heads")
        own = stated_size(self.config, "head_dim") or self.d_head
        return heads, key_heads, own or head_size(self.width, heads)

    def norm(self, name: str, size: int) -> Norm:
        return self.reader.norm(name, size, "rms", self.epsilon, self.added_gain)

    def first_layer(self) -> FirstLayer:
        d, (heads, key_heads, d_head) = self.width, self.sizes()
        longest = stated_size(self.config, "max_position_embeddings") or self.default_length
        if longest is None:
            raise CheckpointError("config.json: max_position_embeddings must be a whole number above 0, not None")
        rope = rope_settings(self.config) if self.rope is None else self.rope
        base = positive(rope, "rope_theta", positive(self.config, "rope_theta", DEFAULT_BASE))
        frequencies, factor = rotary_frequencies(rope, base, self._turned(rope, d_head), longest)
        query_weight, query_bias = self._projection("q", heads, d_head)
        key_weight, key_bias = self._projection("k", key_heads, d_head)
        value_weight, value_bias = self._projection("v", key_heads, d_head)
        return FirstLayer(
            token_embeddings=self._embeddings(d),
            position_embeddings=np.zeros((0, d), self.reader.dtype),
            norm_gain=self.norm("layers.0.input_layernorm", d).gain,
            norm_bias=np.zeros(d, self.reader.dtype),
            norm_epsilon=self.epsilon,
            query_weight=query_weight,
            query_bias=query_bias,
            key_weight=key_weight,
            key_bias=key_bias,
            value_weight=value_weight,
            value_bias=value_bias,
            output_weight=self.reader.linear(f"{ATTENTION}o_proj.weight", heads * d_head, d).reshape(heads, d_head, d),
            output_bias=self.reader.bias(f"{ATTENTION}o_proj.bias", d, self.output_bias),
            attention_scale=d_head**-0.5 if self.attention_scale is None else self.attention_scale,
            norm_kind="rms",
            rotary_frequencies=frequencies,
            rotary_factor=factor,
            longest_text=longest,
            query_norm_gain=self.norm(f"{ATTENTION}q_norm", d_head).gain if self.has_head_norms else None,
            key_norm_gain=self.norm(f"{ATTENTION}k_norm", d_head).gain if self.has_head_norms else None,
            is_causal=self.is_causal,
            window=self.window,
            softcap=self.softcap,
        )

    def _turned(self, rope: Rope, d_head: int) -> int:
        """How many features of a head are turned: all of them, but in a family that says otherwise."""
        stated = self.config if self.config.get("partial_rotary_factor") is not None else rope
        share = positive(stated, "partial_rotary_factor", 1.0)
        if share != 1 and not self.may_turn_part_of_heads:
            raise UnsupportedModelError(f"config.json: partial_rotary_factor = {share} is not handled for this family")
        return int(d_head * share)

    def _embeddings(self, d: int) -> np.ndarray:
        table = self.reader.read("embed_tokens.weight", (stated_size(self.config, "vocab_size"), d))
        return table if self.embedding_scale == 1 else transform_rows(table, lambda rows: rows * self.embedding_scale)

    def _projection(self, name: str, heads: int, d_head: int) -> tuple[np.ndarray, np.ndarray]:
        weight = self.reader.linear(f"{ATTENTION}{name}_proj.weight", self.width, heads * d_head)
        bias = self.reader.bias(f"{ATTENTION}{name}_proj.bias", heads * d_head, self.query_key_value_bias)
        return weight.reshape(self.width, heads, d_head), bias.reshape(heads, d_head)

    def feed_forward(self, activation_name: str, default: str) -> FeedForward:
        d, inner = self.width, whole_number(self.config, "intermediate_size")

        def bias(name: str, size: int) -> np.ndarray | None:
            return self.reader.bias(f"layers.0.mlp.{name}_proj.bias", size) if self.mlp_bias else None

        return FeedForward(
            activation_of(self.config, activation_name, default),
            self.reader.linear("layers.0.mlp.up_proj.weight", d, inner),
            bias("up", inner),
            self.reader.linear("layers.0.mlp.down_proj.weight", inner, d),
            bias("down", d),
            self.reader.linear("layers.0.mlp.gate_proj.weight", d, inner),
            bias("gate", inner),
        )

    def rest_of_block(self) -> RestOfBlock:
        """As Llama has it: one norm in front of the MLP."""
        return RestOfBlock(
            self.feed_forward("hidden_act", "silu"),
            input_norm=self.norm("layers.0.post_attention_layernorm", self.width),
        )


def window_of(config: Config, default: int = 4096) -> int | None:
    """The sliding window: null is none, a config that does not speak of it has the family's."""
    return stated_size(config, "sliding_window") if "sliding_window" in config else default


def first_layer_is_local(config: Config, by_default: bool) -> bool:
    """Is layer 0 one of those with a sliding window? As `layer_types` says, or as the family has it."""
    kinds = config.get("layer_types")
    if kinds is None:
        return by_default
    if not isinstance(kinds, list) or not kinds or kinds[0] not in ("full_attention", "sliding_attention"):
        raise CheckpointError("config.json: layer_types must begin with full_attention or sliding_attention")
    return bool(kinds[0] == "sliding_attention")
