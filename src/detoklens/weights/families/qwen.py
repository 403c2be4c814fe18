"""Qwen2 and 2.5: Llama with biases on queries, keys and values. Qwen3: no biases, an RMSNorm on queries and keys."""

from __future__ import annotations

from typing import Any

import numpy as np

from detoklens.errors import UnsupportedModelError
from detoklens.weights.families import llama_like
from detoklens.weights.families.base import Config, NamedTensors, refuse_unhandled, stated_size, yes_or_no
from detoklens.weights.families.llama_like import LlamaLike, first_layer_is_local, window_of
from detoklens.weights.first_layer import FirstLayer
from detoklens.weights.rest_of_block import RestOfBlock
from detoklens.weights.sources import TensorSource

HANDLED = llama_like.HANDLED | {"use_sliding_window", "sliding_window", "max_window_layers", "layer_types"}

IRRELEVANT = llama_like.IRRELEVANT | {"norm_topk_prob", "decoder_sparse_step"}  # of experts


class Qwen2(NamedTensors):
    """Reads the first layer of a Qwen2 or Qwen2.5."""

    model_types: tuple[str, ...] = ("qwen2",)
    prefixes = llama_like.PREFIXES
    tensors = llama_like.TENSORS
    optional = llama_like.BIASES
    rest = llama_like.REST

    def read(self, config: Config, source: TensorSource, dtype: np.dtype[Any]) -> FirstLayer:
        refuse_unhandled(config, HANDLED, IRRELEVANT)
        return self._parts(config, source, dtype).first_layer()

    def read_rest(self, config: Config, source: TensorSource, dtype: np.dtype[Any]) -> RestOfBlock:
        return self._parts(config, source, dtype).rest_of_block()

    def _parts(self, config: Config, source: TensorSource, dtype: np.dtype[Any]) -> LlamaLike:
        return LlamaLike(
            config,
            self.reader(source, dtype),
            query_key_value_bias=True,
            window=_window(config),
            default_length=32_768,
        )


class Qwen3(Qwen2):
    """Reads the first layer of a dense Qwen3."""

    model_types = ("qwen3",)
    tensors = (*llama_like.TENSORS, *llama_like.HEAD_NORMS)

    def _parts(self, config: Config, source: TensorSource, dtype: np.dtype[Any]) -> LlamaLike:
        biased = yes_or_no(config, "attention_bias", False)
        return LlamaLike(
            config,
            self.reader(source, dtype),
            query_key_value_bias=biased,
            output_bias=biased,
            has_head_norms=True,
            d_head=128,
            window=_window(config),
            default_length=32_768,
        )


class Qwen3Experts(Qwen3):
    """The same with a mixture of experts for an MLP, which is not computed."""

    model_types = ("qwen3_moe",)
    rest = ()

    def read_rest(self, *_: Any) -> RestOfBlock:
        raise UnsupportedModelError("qwen3_moe: the MLP is a mixture of experts, so the block's output is not computed")


def _window(config: Config) -> int | None:
    """Layers from max_window_layers on have the window, if it is switched on at all."""
    if not yes_or_no(config, "use_sliding_window", False):
        return None
    first_with_window = 0 if config.get("max_window_layers") == 0 else stated_size(config, "max_window_layers")
    return window_of(config) if first_layer_is_local(config, by_default=first_with_window == 0) else None
