"""Phi 3 and 4: Llama with one tensor for queries, keys and values and one for gate and up; part of heads may turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from detoklens.weights.families import llama_like
from detoklens.weights.families.base import (
    Config,
    NamedTensors,
    activation_of,
    epsilon_of,
    refuse_unhandled,
    stated_size,
    whole_number,
)
from detoklens.weights.families.llama_like import LlamaLike
from detoklens.weights.first_layer import FirstLayer
from detoklens.weights.rest_of_block import FeedForward, RestOfBlock
from detoklens.weights.sources import TensorSource

JOINT, OUTPUT = "layers.0.self_attn.qkv_proj.weight", "layers.0.self_attn.o_proj.weight"
GATE_AND_UP, DOWN = "layers.0.mlp.gate_up_proj.weight", "layers.0.mlp.down_proj.weight"
HANDLED = llama_like.HANDLED | {"sliding_window", "partial_rotary_factor"}
IRRELEVANT = llama_like.IRRELEVANT | {
    "embd_pdrop",
    "original_max_position_embeddings",  # of longrope, which is refused
}


class Phi3(NamedTensors):
    """Reads the first layer of a Phi 3 or 4."""

    model_types = ("phi3",)
    prefixes = llama_like.PREFIXES
    tensors = ("embed_tokens.weight", "layers.0.input_layernorm.weight", JOINT, OUTPUT)
    rest = ("layers.0.post_attention_layernorm.weight", GATE_AND_UP, DOWN)

    def read(self, config: Config, source: TensorSource, dtype: np.dtype[Any]) -> FirstLayer:
        refuse_unhandled(config, HANDLED, IRRELEVANT)
        return self._parts(config, source, dtype).first_layer()

    def read_rest(self, config: Config, source: TensorSource, dtype: np.dtype[Any]) -> RestOfBlock:
        return self._parts(config, source, dtype).rest_of_block()

    def _parts(self, config: Config, source: TensorSource, dtype: np.dtype[Any]) -> _Parts:
        window = stated_size(config, "sliding_window")
        reader = self.reader(source, dtype)
        return _Parts(config, reader, window=window, default_length=4096, may_turn_part_of_heads=True)


@dataclass(frozen=True)
class _Parts(LlamaLike):
    """The same with tensors that hold several matrices, one below the other."""

    @property
    def epsilon(self) -> float:
        return epsilon_of(self.config, "rms_norm_eps", 1e-5)

    def _projection(self, name: str, heads: int, d_head: int) -> tuple[np.ndarray, np.ndarray]:
        all_heads, key_heads, _ = self.sizes()
        joint = self.reader.read(JOINT, ((all_heads + 2 * key_heads) * d_head, self.width))
        first = {"q": 0, "k": all_heads, "v": all_heads + key_heads}[name] * d_head
        weight = np.ascontiguousarray(joint[first : first + heads * d_head].T)
        return weight.reshape(self.width, heads, d_head), np.zeros((heads, d_head), weight.dtype)

    def feed_forward(self, activation_name: str, default: str) -> FeedForward:
        d, inner = self.width, whole_number(self.config, "intermediate_size")
        activation = activation_of(self.config, activation_name, default)
        gate, up = np.split(self.reader.read(GATE_AND_UP, (2 * inner, d)), 2)
        return FeedForward(
            activation,
            np.ascontiguousarray(up.T),
            None,
            self.reader.linear(DOWN, inner, d),
            None,
            np.ascontiguousarray(gate.T),
        )
