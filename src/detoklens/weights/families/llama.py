"""Llama 2 and 3, TinyLlama, SmolLM, Mistral: RMSNorm, rotary positions, shared keys, no biases, causal."""

from __future__ import annotations

from typing import Any

import numpy as np

from detoklens.errors import UnsupportedModelError
from detoklens.weights.families import llama_like
from detoklens.weights.families.base import Config, NamedTensors, refuse_unhandled, yes_or_no
from detoklens.weights.families.llama_like import LlamaLike, window_of
from detoklens.weights.first_layer import FirstLayer
from detoklens.weights.rest_of_block import RestOfBlock
from detoklens.weights.sources import TensorSource


class Llama(NamedTensors):
    """Reads the first layer of a Llama."""

    model_types: tuple[str, ...] = ("llama",)
    prefixes = llama_like.PREFIXES
    tensors = llama_like.TENSORS
    optional = llama_like.BIASES
    rest = llama_like.REST
    optional_rest = llama_like.MLP_BIASES
    default_length = 2048

    def read(self, config: Config, source: TensorSource, dtype: np.dtype[Any]) -> FirstLayer:
        refuse_unhandled(config, llama_like.HANDLED, llama_like.IRRELEVANT)
        return self._parts(config, source, dtype).first_layer()

    def read_rest(self, config: Config, source: TensorSource, dtype: np.dtype[Any]) -> RestOfBlock:
        return self._parts(config, source, dtype).rest_of_block()

    def _parts(self, config: Config, source: TensorSource, dtype: np.dtype[Any]) -> LlamaLike:
        biased = yes_or_no(config, "attention_bias", False)
        return LlamaLike(
            config,
            self.reader(source, dtype),
            query_key_value_bias=biased,
            output_bias=biased,
            mlp_bias=yes_or_no(config, "mlp_bias", False),
            default_length=self.default_length,
        )


class Mistral(Llama):
    """The same with a sliding window, where the config has one."""

    model_types = ("mistral",)
    default_length = 131_072

    def read(self, config: Config, source: TensorSource, dtype: np.dtype[Any]) -> FirstLayer:
        refuse_unhandled(config, llama_like.HANDLED | {"sliding_window"}, llama_like.IRRELEVANT)
        return self._parts(config, source, dtype).first_layer()

    def _parts(self, config: Config, source: TensorSource, dtype: np.dtype[Any]) -> LlamaLike:
        window = window_of(config)
        return LlamaLike(config, self.reader(source, dtype), window=window, default_length=self.default_length)


class Mixtral(Mistral):
    """The same with a mixture of experts for an MLP, which is not computed."""

    model_types = ("mixtral",)
    rest = ()
    optional_rest = ()

    def read_rest(self, *_: Any) -> RestOfBlock:
        raise UnsupportedModelError("mixtral: the MLP is a mixture of experts, so the block's output is not computed")
