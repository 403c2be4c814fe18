"""Gemma 1, 2 and 3 (text): Llama with embeddings scaled by sqrt(width), RMSNorm's gain stored as gain − 1.

Gemma 2 scales queries by a number of its own and caps scores; layer 0 has a sliding window, and what attention and MLP
write is normed before it is added. Gemma 3 norms queries and keys in place of the cap, and its layers with a window
have a rotary base of their own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from detoklens.errors import CheckpointError, UnsupportedModelError, shown
from detoklens.weights.families import llama_like
from detoklens.weights.families.base import Config, NamedTensors, refuse_unhandled, whole_number, yes_or_no
from detoklens.weights.families.llama_like import LlamaLike, first_layer_is_local, window_of
from detoklens.weights.first_layer import FirstLayer
from detoklens.weights.rest_of_block import RestOfBlock
from detoklens.weights.rotary import positive
from detoklens.weights.sources import TensorSource

LOCAL_BASE, GLOBAL_BASE = 10_000.0, 1_000_000.0
NORMS = ("post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")
IRRELEVANT = llama_like.IRRELEVANT | {"final_logit_softcapping", "_sliding_window_pattern"}


class Gemma(NamedTensors):
    """Reads the first layer of a Gemma 1."""

    model_types: tuple[str, ...] = ("gemma",)
    prefixes = llama_like.PREFIXES
    tensors: tuple[str, ...] = llama_like.TENSORS
    optional = llama_like.BIASES
    rest: tuple[str, ...] = llama_like.REST
    handled = llama_like.HANDLED | {"use_bidirectional_attention"}

    def read(self, config: Config, source: TensorSource, dtype: np.dtype[Any]) -> FirstLayer:
        refuse_unhandled(config, self.handled, IRRELEVANT)
        return self._parts(config, source, dtype).first_layer()

    def read_rest(self, config: Config, source: TensorSource, dtype: np.dtype[Any]) -> RestOfBlock:
        parts = self._parts(config, source, dtype)
        norm = parts.norm("layers.0.post_attention_layernorm", parts.width)
        meant = {**config, "hidden_act": "gelu_pytorch_tanh"} if config.get("hidden_act") == "gelu" else config
        mlp = replace(parts, config=meant).feed_forward("hidden_act", "gelu_pytorch_tanh")
        return RestOfBlock(mlp, input_norm=norm)

    def _parts(self, config: Config, source: TensorSource, dtype: np.dtype[Any]) -> LlamaLike:
        biased = yes_or_no(config, "attention_bias", False)
        if config.get("use_bidirectional_attention"):
            raise UnsupportedModelError("config.json: use_bidirectional_attention is not handled for Gemma")
        return LlamaLike(
            config,
            self.reader(source, dtype),
            query_key_value_bias=biased,
            output_bias=biased,
            d_head=256,
            added_gain=1.0,
            embedding_scale=whole_number(config, "hidden_size") ** 0.5,
            default_length=8192,
        )


class Gemma2(Gemma):
    """Reads the first layer of a Gemma 2."""

    model_types = ("gemma2",)
    rest = (
        *(f"layers.0.{name}.weight" for name in NORMS),
        *(f"layers.0.mlp.{name}_proj.weight" for name in ("gate", "up", "down")),
    )
    handled = Gemma.handled | {
        "query_pre_attn_scalar", "sliding_window", "layer_types", "attn_logit_softcapping", "sliding_window_pattern",
    }  # fmt: skip

    def read_rest(self, config: Config, source: TensorSource, dtype: np.dtype[Any]) -> RestOfBlock:
        parts = self._parts(config, source, dtype)
        after_attention, before_mlp, after_mlp = (parts.norm(f"layers.0.{name}", parts.width) for name in NORMS)
        return RestOfBlock(
            parts.feed_forward("hidden_activation", "gelu_pytorch_tanh"),
            input_norm=before_mlp,
            attention_norm=after_attention,
            mlp_norm=after_mlp,
        )

    def _parts(self, config: Config, source: TensorSource, dtype: np.dtype[Any]) -> LlamaLike:
        return replace(
            super()._parts(config, source, dtype),
            attention_scale=positive(config, "query_pre_attn_scalar", 256) ** -0.5,
            window=window_of(config) if first_layer_is_local(config, by_default=True) else None,
            softcap=self._softcap(config),
        )

    def _softcap(self, config: Config) -> float | None:
        if "attn_logit_softcapping" in config and config["attn_logit_softcapping"] is None:
            return None
        return positive(config, "attn_logit_softcapping", 50.0)


class Gemma3(Gemma2):
    """Reads the first layer of a text-only Gemma 3."""

    model_types = ("gemma3_text",)
    tensors = (*llama_like.TENSORS, *llama_like.HEAD_NORMS)
    handled = Gemma2.handled | {"rope_local_base_freq"}

    def _parts(self, config: Config, source: TensorSource, dtype: np.dtype[Any]) -> LlamaLike:
        is_local = first_layer_is_local(config, by_default=config.get("sliding_window_pattern", 6) != 1)
        parts = super()._parts(config, source, dtype)
        return replace(parts, has_head_norms=True, rope=_rope(config, is_local), default_length=131_072)

    def _softcap(self, config: Config) -> None:
        if config.get("attn_logit_softcapping") is not None:
            value = shown(config["attn_logit_softcapping"])
            raise UnsupportedModelError(f"config.json: attn_logit_softcapping = {value} is not handled for Gemma 3")


def _rope(config: Config, is_local: bool) -> dict[str, Any]:
    """The RoPE settings of layer 0: local layers have their own base and no scaling."""
    for name in ("rope_parameters", "rope_scaling"):
        if not isinstance(config.get(name) or {}, dict):
            raise CheckpointError(f"config.json: {name} must be an object, not {shown(config[name])}")
    own = (config.get("rope_parameters") or {}).get("sliding_attention" if is_local else "full_attention")
    if isinstance(own, dict):
        return own
    if is_local:
        return {"rope_theta": positive(config, "rope_local_base_freq", LOCAL_BASE)}
    return {"rope_theta": positive(config, "rope_theta", GLOBAL_BASE)} | (config.get("rope_scaling") or {})
