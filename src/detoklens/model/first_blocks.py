"""Run the first blocks of the real model, with or without one head or one MLP.

The model runs once per batch, and a cache keeps what enters each block with its other arguments (masks, angles). To
ablate something in block l, only blocks l, l + 1, … run again, from the cached input of block l. A head is ablated by
zeroing its part of the input of the attention's output projection, an MLP by zeroing its output. The hooks that do this
look at a thread-local setting, so several threads can share one model.

Blocks are loaded with transformers and eager attention. The config is truncated to the requested blocks, so only
their tensors are read from the checkpoint.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from math import isclose
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch.overrides import TorchFunctionMode
from transformers import AutoConfig, AutoModel
from transformers import modeling_gguf_pytorch_utils as gguf_reader
from transformers.utils import logging

from detoklens.errors import CheckpointError, UnsupportedModelError, shown
from detoklens.model.checks import (
    Component,
    is_in_a_file,
    refuse_layers,
    refuse_too_large,
    remedy_of_memory,
    their_failures,
    what_is_loaded,
)
from detoklens.weights.blocks import base_of, blocks_size, class_name, source_of
from detoklens.weights.checkpoint import Checkpoint
from detoklens.weights.config import MULTIMODAL
from detoklens.weights.families import spec_of
from detoklens.weights.gguf_file import GGUFFile
from detoklens.weights.sources import tensors_of
from detoklens.weights.spec import Spec

IRRELEVANT_SETTINGS = ("n_positions", "max_position_embeddings", "bos_token_id", "eos_token_id")
"""Config keys that do not change what a block computes on a given text."""
DEPTHS = ("num_hidden_layers", "encoder_layers", "decoder_layers")
KINDS = ("layer_types", "attention_layers")  # one entry per block
LANGUAGE_MODEL = r"^(model\.language_model|language_model\.model)\."  # what its tensors' names begin with
GGUF_TABLES = {
    "embed_tokens.weight": "vocab_size",
    "word_embeddings.weight": "vocab_size",
    "wte.weight": "vocab_size",
    "wpe.weight": "n_positions",
}  # config keys that transformers does not always read from a GGUF file, by the tensor that has one row for each


@dataclass(frozen=True)
class ForwardCache:
    """Texts of one length: `states[l]` enters block l with `arguments[l]`; the last state leaves the last block."""

    states: list[torch.Tensor]
    arguments: list[tuple[tuple[Any, ...], dict[str, Any]]]

    def last_places(self, after: int) -> Float[np.ndarray, "text d_model"]:
        """The residual stream at each text's last position after block `after`."""
        return _at_last_position(self.states[after + 1])

    def all_places(self, after: int) -> Float[np.ndarray, "text place d_model"]:
        """The residual stream at all positions after block `after`."""
        return np.array(self.states[after + 1].numpy())


def _at_last_position(states: torch.Tensor) -> Float[np.ndarray, "text d_model"]:
    return np.array(states[:, -1].numpy())


@dataclass(frozen=True)
class Loaded:
    """The first blocks of a model, and the tensors missing from its files, which are random."""

    model: Any
    missing: frozenset[str] = frozenset()
    mismatched: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...] = ()
    """Tensors of another shape than transformers expects: name, shape in the file, expected shape."""

    def refuse_mismatched(self, name: str) -> None:
        if self.mismatched:
            tensor, found, expected = self.mismatched[0]
            raise UnsupportedModelError(
                f"{name}: transformers can't run this checkpoint: tensor {tensor!r} has shape {tuple(found)}, but "
                f"transformers expects {tuple(expected)}; correct the settings, or pass the checkpoint as safetensors"
            )


def load_blocks(real: Path | Any, n_blocks: int, dtype: torch.dtype) -> Loaded:
    """Load the first blocks from a folder or GGUF file, or copy those of a model in memory."""
    loaded = (_from_path if isinstance(real, Path) else _from_memory)(real, n_blocks, dtype)
    loaded.model.config._experts_implementation = "eager"  # the fast one supports only some sizes
    loaded.model.config.use_cache = False
    loaded.model.eval()
    return loaded


def _from_path(path: Path, n_blocks: int, dtype: torch.dtype) -> Loaded:
    options: dict[str, Any] = {"dtype": dtype, "attn_implementation": "eager", "output_loading_info": True}
    if path.is_file():  # transformers reads the whole GGUF file
        options["gguf_file"] = path.name
        config = AutoConfig.from_pretrained(path.parent, gguf_file=path.name)
        tensors = GGUFFile(path)
        for tensor, key in GGUF_TABLES.items():
            if tensor in tensors.names():
                setattr(config, key, tensors.shape(tensor)[0])
    else:
        config = AutoConfig.from_pretrained(path)
        if config.model_type in MULTIMODAL:
            config, options["key_mapping"] = config.text_config, {LANGUAGE_MODEL: ""}
        config = _cut(config, n_blocks)
    folder = path.parent if path.is_file() else path
    model, info = AutoModel.from_pretrained(folder, config=config, ignore_mismatched_sizes=True, **options)
    return Loaded(model, frozenset(info["missing_keys"]), tuple(sorted(info["mismatched_keys"])))


def _from_memory(model: Any, n_blocks: int, dtype: torch.dtype) -> Loaded:
    base = base_of(model)
    copied = type(base)._from_config(_cut(deepcopy(base.config), n_blocks), dtype=dtype, attn_implementation="eager")
    wanted = copied.state_dict()
    copied.load_state_dict({name: values for name, values in tensors_of(base).items() if name in wanted})
    return Loaded(copied)


def _cut(config: Any, n_blocks: int) -> Any:
    for name in DEPTHS:
        if hasattr(config, name):
            setattr(config, name, n_blocks)
    for kinds in KINDS:
        if getattr(config, kinds, None):
            setattr(config, kinds, getattr(config, kinds)[:n_blocks])
    for rounding in ("reorder_and_upcast_attn", "slow_but_exact"):  # these only change the order of sums
        if hasattr(config, rounding):
            setattr(config, rounding, False)
    return config


def open_blocks(checkpoint: Checkpoint, n_blocks: int, n_heads: int, dtype: str = "float32") -> FirstBlocks:
    """Load the first blocks of a checkpoint's real model; only their tensors are read or downloaded."""
    refuse_layers(checkpoint, n_blocks)
    spec = spec_of(checkpoint.config)
    refuse_too_large(
        4 * blocks_size(checkpoint, n_blocks),
        f"{checkpoint.name}: {what_is_loaded(checkpoint, n_blocks)} in float32",
        remedy_of_memory(checkpoint, "fewer"),
    )
    real = checkpoint.blocks_folder(n_blocks) or checkpoint.model
    with their_failures(checkpoint.name), quiet_transformers(), _precision(dtype):
        loaded = load_blocks(real, n_blocks, getattr(torch, dtype))
        _refuse_missing(loaded, spec, checkpoint.name)
        if is_in_a_file(checkpoint):
            _refuse_misread_gguf(loaded, checkpoint, n_blocks)
        loaded.refuse_mismatched(checkpoint.name)
        return FirstBlocks(loaded.model, spec, n_blocks, n_heads, dtype, checkpoint.name)


def _refuse_missing(loaded: Loaded, spec: Spec, name: str) -> None:
    """transformers initializes missing tensors at random."""
    absent = sorted(tensor for tensor in loaded.missing if f".{spec.blocks}." in f".{tensor}" and spec.part in tensor)
    if absent:
        raise CheckpointError(
            f"{name}: tensor {absent[0]!r} is missing, so its first blocks can't be run; pass the whole checkpoint"
        )


def _refuse_misread_gguf(loaded: Loaded, checkpoint: Checkpoint, n_blocks: int) -> None:
    """transformers silently drops tensors of a GGUF file that its config does not have, and ignores some settings."""
    remedy = "so its first blocks can't be run as they are; pass the checkpoint as safetensors"
    source = source_of(checkpoint, n_blocks)
    left_out = source.left_out(loaded.model.state_dict().keys()) if isinstance(source, GGUFFile) else []
    if left_out:
        raise UnsupportedModelError(
            f"{checkpoint.name}: transformers leaves the tensor {left_out[0]!r} of this GGUF file out, {remedy}"
        )
    config = loaded.model.config
    rotary = getattr(config, "rope_parameters", None) or {}
    for name, ours in checkpoint.config.items():
        theirs = rotary.get(name, getattr(config, name, None))
        if name in IRRELEVANT_SETTINGS or theirs is None or not isinstance(ours, int | float):
            continue
        if not (isinstance(theirs, int | float) and isclose(ours, theirs, rel_tol=1e-6)):
            raise UnsupportedModelError(
                f"{checkpoint.name}: transformers takes {shown(theirs)} for {name}, but the GGUF file says "
                f"{shown(ours)}, {remedy}"
            )


def _precision(dtype: str) -> AbstractContextManager[None]:
    return in_double_precision() if dtype == "float64" else nullcontext()


class StopForward(Exception):
    """Stops a forward pass once everything needed is cached."""


class FirstBlocks:
    """The first blocks of a real model."""

    def __init__(self, whole: Any, spec: Spec, n_blocks: int, n_heads: int, dtype: str, name: str) -> None:
        self.n_heads, self.dtype, self.name = n_heads, dtype, name
        self.class_name = class_name(whole)
        self._model = whole.get_submodule(spec.part) if spec.part else whole
        self._blocks = list(self._model.get_submodule(spec.blocks))[:n_blocks]
        self._local = threading.local()
        for layer, block in enumerate(self._blocks):
            block.register_forward_pre_hook(self._cache_input, with_kwargs=True)
            block.get_submodule(spec.projections.modules[-1]).register_forward_pre_hook(self._head_ablation(layer))
            block.get_submodule(spec.mlp_module).register_forward_hook(self._mlp_ablation(layer))
        self._blocks[-1].register_forward_hook(self._cache_output)

    @property
    def n_blocks(self) -> int:
        return len(self._blocks)

    def run(self, token_ids: Int[np.ndarray, "text place"], until: int | None = None) -> ForwardCache:
        """Run texts of one length through all blocks, or up to the input of block `until`."""
        cache = self._local.cache = ForwardCache([], [])
        self._local.until = until
        try:
            with their_failures(self.name), suppress(StopForward), torch.inference_mode(), _precision(self.dtype):
                self._model(torch.from_numpy(np.ascontiguousarray(token_ids, np.int64)))
        finally:
            self._local.cache = None
        return cache

    def rerun(self, cache: ForwardCache, without: Component, after: int) -> Float[np.ndarray, "text d_model"]:
        """The residual stream at each text's last position after block `after`, with one component ablated."""
        states = cache.states[without.layer]
        self._local.ablated = without
        try:
            with torch.inference_mode(), self._wide():
                for layer in range(without.layer, after + 1):
                    states = self._through(layer, states, cache)
        finally:
            self._local.ablated = None
        return _at_last_position(states)

    def config_list(self, name: str) -> list[Any]:
        """A config entry with one item per block; empty if the config lacks it."""
        return list(getattr(self._model.config, name, None) or [])

    def scores(
        self, cache: ForwardCache, layer: int, entering: Float[np.ndarray, "text place d_model"] | None = None
    ) -> tuple[Float[np.ndarray, "text head query key"], Float[np.ndarray, "text head query key"]]:
        """Input (mask included) and output of the softmax of one block's attention.

        `entering` replaces the states that enter the block.
        """
        states = cache.states[layer] if entering is None else torch.from_numpy(entering)
        catcher = _SoftmaxCatcher(len(states), self.n_heads)
        with torch.inference_mode(), self._wide(), catcher, suppress(StopForward):
            self._through(layer, states, cache)
        if catcher.caught is None:
            raise UnsupportedModelError(
                f"{self.name}: layer {layer} has no softmax over its {self.n_heads} heads that can be read; only layer "
                "0 can be analysed"
            )
        scores, attention = catcher.caught
        return scores.numpy(), attention.numpy()

    def _through(self, layer: int, states: torch.Tensor, cache: ForwardCache) -> torch.Tensor:
        args, named = cache.arguments[layer]
        if "hidden_states" in named:
            return _first(self._blocks[layer](*args, **named | {"hidden_states": states}))
        return _first(self._blocks[layer](states, *args[1:], **named))

    def _wide(self) -> AbstractContextManager[None]:
        return Float64Mode() if self.dtype == "float64" else nullcontext()

    def _cache_input(self, _block: Any, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        cache = getattr(self._local, "cache", None)
        if cache is not None:
            cache.states.append(named["hidden_states"] if "hidden_states" in named else args[0])
            cache.arguments.append((args, named))
            if len(cache.states) - 1 == self._local.until:
                raise StopForward

    def _cache_output(self, _block: Any, _inputs: Any, output: Any) -> None:
        cache = getattr(self._local, "cache", None)
        if cache is not None:
            cache.states.append(_first(output))
            raise StopForward  # a GGUF file is loaded with all later blocks

    def _head_ablation(self, layer: int) -> Any:
        def ablate(_projection: Any, inputs: Any) -> Any:
            ablated = getattr(self._local, "ablated", None)
            if ablated is None or ablated.layer != layer or ablated.head is None:
                return None
            mixed = inputs[0].clone()
            mixed.view(*mixed.shape[:-1], self.n_heads, -1)[..., ablated.head, :] = 0
            return (mixed, *inputs[1:])

        return ablate

    def _mlp_ablation(self, layer: int) -> Any:
        def ablate(_mlp: Any, _inputs: Any, output: Any) -> Any:
            if getattr(self._local, "ablated", None) != Component(layer):
                return None
            if isinstance(output, tuple):
                return (output[0].new_zeros(output[0].shape), *output[1:])
            return output.new_zeros(output.shape)

        return ablate


def _first(output: Any) -> Any:
    return output[0] if isinstance(output, tuple | list) else output


class _SoftmaxCatcher(TorchFunctionMode):  # type: ignore[misc]
    """Records input and output of a block's first softmax over texts and heads, the attention's, and stops there.

    XGLM computes it with texts and heads in one axis.
    """

    def __init__(self, texts: int, heads: int) -> None:
        super().__init__()
        self.texts, self.heads = texts, heads
        self.caught: tuple[Any, Any] | None = None

    def __torch_function__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") != "softmax":
            return result
        if result.ndim == 4 or (result.ndim == 3 and len(result) == self.texts * self.heads):
            shape = (self.texts, self.heads, *result.shape[-2:])
            self.caught = (args[0].reshape(shape), result.reshape(shape))
            raise StopForward
        return result


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Run each of our threads on one core: threads are the only parallelism, and sums keep their order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def in_double_precision() -> Iterator[None]:
    """Make transformers compute norms, rotary angles and softmax in float64.

    It casts them to float32 for every dtype, so a comparison in float64 would only see rounding. The formulas are
    transformers' own.
    """
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with Float64Mode():
            yield
    finally:
        torch.set_default_dtype(usual)


class Float64Mode(TorchFunctionMode):  # type: ignore[misc]
    """Replaces float32 by float64 in every torch call of this thread."""

    def __torch_function__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def wide(value: Any) -> Any:
            return torch.float64 if value is torch.float32 else value

        func = torch.Tensor.double if func is torch.Tensor.float else func
        named = {name: wide(value) for name, value in (kwargs or {}).items()}
        return func(*(wide(value) for value in args), **named)


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence transformers' progress bars and its report of missing tensors: later layers are left out on purpose."""
    bar = getattr(gguf_reader, "tqdm", None)  # which ignores the logging settings
    if bar is not None:
        gguf_reader.tqdm = partial(bar, disable=True)
    verbosity, had_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if had_bars:
            logging.enable_progress_bar()
        if bar is not None:
            gguf_reader.tqdm = bar
