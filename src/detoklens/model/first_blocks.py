"""Run the first blocks of the real model, with or without one head or one MLP.

The model runs once per batch, and a cache keeps what enters each block with its other arguments (masks, angles). To
ablate something in block l, only blocks l, l + 1, … run again, from the cached input of block l. A head is ablated by
zeroing its part of the input of the attention's output projection, an MLP by zeroing its output. The hooks that do this
look at a thread-local setting, so several threads can share one model.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from math import isclose
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from detoklens.errors import CheckpointError, RangeError, UnsupportedModelError, shown
from detoklens.model.loading import (
    Loaded,
    depth_of,
    in_double_precision,
    load_blocks,
    quiet_transformers,
    refuse_too_large,
    require_extra,
    their_failures,
    widened,
)
from detoklens.weights.blocks import blocks_size, class_name, source_of
from detoklens.weights.families import spec_of
from detoklens.weights.gguf_file import GGUFFile
from detoklens.weights.spec import Modules

if TYPE_CHECKING:
    import torch

    from detoklens.weights.checkpoint import Checkpoint

IRRELEVANT_SETTINGS = ("n_positions", "max_position_embeddings", "bos_token_id", "eos_token_id")
"""Config keys that do not change what a block computes on a given text."""


@dataclass(frozen=True)
class Component:
    """A head of a block, or its MLP if `head` is None."""

    layer: int
    head: int | None = None

    @property
    def name(self) -> str:
        return f"MLP{self.layer}" if self.head is None else f"L{self.layer}H{self.head}"


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


def check_layer(checkpoint: Checkpoint, layer: int) -> None:
    """Raise if the model does not have this layer."""
    depth = depth_of(checkpoint.config)
    if layer >= depth:
        raise RangeError(
            f"layer {layer} was asked for; {checkpoint.name} has layers 0 to {depth - 1}: ask for one of them"
        )


def refuse_layers(checkpoint: Checkpoint, n_blocks: int) -> None:
    """Raise early if the blocks can't be run: missing extra, unknown architecture, or too many blocks."""
    require_extra("running the real model's first blocks", checkpoint.folder)
    spec_of(checkpoint.config)
    depth = depth_of(checkpoint.config)
    if n_blocks > depth:
        raise RangeError(f"{n_blocks} blocks were asked for; {checkpoint.name} has {depth}: ask for {depth} or fewer")


def open_blocks(checkpoint: Checkpoint, n_blocks: int, n_heads: int, dtype: str = "float32") -> FirstBlocks:
    """Load the first blocks of a checkpoint's real model; only their tensors are read or downloaded."""
    refuse_layers(checkpoint, n_blocks)
    modules = spec_of(checkpoint.config).modules
    refuse_too_large(
        4 * blocks_size(checkpoint, n_blocks),
        f"{checkpoint.name}: {what_is_loaded(checkpoint, n_blocks)} in float32",
        remedy_of_memory(checkpoint, "fewer"),
    )
    real = checkpoint.blocks_folder(n_blocks) or checkpoint.model
    with their_failures(checkpoint.name), quiet_transformers(), _precision(dtype):
        import torch

        loaded = load_blocks(real, n_blocks, getattr(torch, dtype))
        _refuse_missing(loaded, modules, checkpoint.name)
        if is_in_a_file(checkpoint):
            _refuse_misread_gguf(loaded, checkpoint, n_blocks)
        loaded.refuse_mismatched(checkpoint.name)
        return FirstBlocks(loaded.model, modules, n_blocks, n_heads, dtype, checkpoint.name)


def what_is_loaded(checkpoint: Checkpoint, n_blocks: int) -> str:
    """The blocks that are in memory at once, as error messages name them."""
    if is_in_a_file(checkpoint):
        return "all blocks, which are read of a GGUF file,"
    return "the first block" if n_blocks == 1 else f"the first {n_blocks} blocks"


def remedy_of_memory(checkpoint: Checkpoint, less: str = "") -> str:
    """What to do if memory does not suffice; `less` is what could be asked for instead."""
    if is_in_a_file(checkpoint):
        return "give the checkpoint as safetensors"
    return f"ask for {less}, or on a machine with more memory" if less else "ask on a machine with more memory"


def is_in_a_file(checkpoint: Checkpoint) -> bool:
    """Whether the checkpoint is a GGUF file."""
    return checkpoint.folder is not None and checkpoint.folder.is_file()


def _refuse_missing(loaded: Loaded, modules: Modules, name: str) -> None:
    """transformers initializes missing tensors at random."""
    absent = sorted(
        tensor for tensor in loaded.missing if f".{modules.blocks}." in f".{tensor}" and modules.part in tensor
    )
    if absent:
        raise CheckpointError(
            f"{name}: tensor {absent[0]!r} is missing, so its first blocks can't be run; give the whole checkpoint"
        )


def _refuse_misread_gguf(loaded: Loaded, checkpoint: Checkpoint, n_blocks: int) -> None:
    """transformers silently drops tensors of a GGUF file that its config does not have, and ignores some settings."""
    remedy = "so its first blocks can't be run as they are; give the checkpoint as safetensors"
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


class Enough(Exception):
    """Stops a forward pass once everything needed is cached."""


class FirstBlocks:
    """The first blocks of a real model."""

    def __init__(self, whole: Any, modules: Modules, n_blocks: int, n_heads: int, dtype: str, name: str) -> None:
        self.n_heads, self.dtype, self.name = n_heads, dtype, name
        self.class_name = class_name(whole)
        self._model = whole.get_submodule(modules.part) if modules.part else whole
        self._blocks = list(self._model.get_submodule(modules.blocks))[:n_blocks]
        self._local = threading.local()
        for layer, block in enumerate(self._blocks):
            block.register_forward_pre_hook(self._cache_input, with_kwargs=True)
            block.get_submodule(modules.projection).register_forward_pre_hook(self._head_ablation(layer))
            block.get_submodule(modules.mlp).register_forward_hook(self._mlp_ablation(layer))
        self._blocks[-1].register_forward_hook(self._cache_output)

    @property
    def n_blocks(self) -> int:
        return len(self._blocks)

    def run(self, token_ids: Int[np.ndarray, "text place"], until: int | None = None) -> ForwardCache:
        """Run texts of one length through all blocks, or up to the input of block `until`."""
        import torch

        cache = self._local.cache = ForwardCache([], [])
        self._local.until = until
        try:
            with their_failures(self.name), suppress(Enough), torch.inference_mode(), _precision(self.dtype):
                self._model(torch.from_numpy(np.ascontiguousarray(token_ids, np.int64)))
        finally:
            self._local.cache = None
        return cache

    def rerun(self, cache: ForwardCache, without: Component, after: int) -> Float[np.ndarray, "text d_model"]:
        """The residual stream at each text's last position after block `after`, with one component ablated."""
        import torch

        states = cache.states[without.layer]
        with torch.inference_mode(), self._wide(), self._ablated(without):
            for layer in range(without.layer, after + 1):
                states = self._through(layer, states, cache)
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
        import torch

        states = cache.states[layer] if entering is None else torch.from_numpy(entering)
        catcher = _softmax_catcher((len(states), self.n_heads))
        with torch.inference_mode(), self._wide(), catcher:
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
        return widened() if self.dtype == "float64" else nullcontext()

    @contextmanager
    def _ablated(self, component: Component) -> Iterator[None]:
        self._local.ablated = component
        try:
            yield
        finally:
            self._local.ablated = None

    def _cache_input(self, _block: Any, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        cache = getattr(self._local, "cache", None)
        if cache is not None:
            cache.states.append(named["hidden_states"] if "hidden_states" in named else args[0])
            cache.arguments.append((args, named))
            if len(cache.states) - 1 == self._local.until:
                raise Enough

    def _cache_output(self, _block: Any, _inputs: Any, output: Any) -> None:
        cache = getattr(self._local, "cache", None)
        if cache is not None:
            cache.states.append(_first(output))
            raise Enough  # a GGUF file is loaded with all later blocks

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


def _softmax_catcher(texts_and_heads: tuple[int, int]) -> Any:
    """A torch mode that records input and output of a block's first softmax over texts and heads: the attention's.

    XGLM computes it with texts and heads in one axis.
    """
    from torch.overrides import TorchFunctionMode

    class Catcher(TorchFunctionMode):  # type: ignore[misc]
        caught: tuple[Any, Any] | None = None

        def __torch_function__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            if getattr(func, "__name__", "") == "softmax" and self.caught is None:
                texts, heads = texts_and_heads
                if result.ndim == 4 or (result.ndim == 3 and len(result) == texts * heads):
                    shape = (texts, heads, *result.shape[-2:])
                    self.caught = (args[0].reshape(shape), result.reshape(shape))
            return result

    return Catcher()


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Let each of our threads compute on one core: the threads are the parallelism, and sums keep their order."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def components(n_blocks: int, n_heads: int) -> Sequence[Component]:
    """Every head and MLP of the first blocks, block by block."""
    return [Component(layer, head) for layer in range(n_blocks) for head in [*range(n_heads), None]]
