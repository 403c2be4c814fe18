"""What do the first blocks of the real model make of some tokens, and what without one head or one MLP?

The model is run once, and what enters each block is kept with all that the model gives to it beside (masks, angles).
To switch something off in block l, only blocks l, l + 1, … are run again, from what entered block l. A head is switched
off by zeros in its part of what enters the attention's output projection, an MLP by zeros for its output; both by hooks
that look at what this thread has switched off, so that several threads may use the same model.
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

States = list["torch.Tensor"]

NO_SAY = (
    *("n_positions", "max_position_embeddings"),  # places beyond a text's own
    *("bos_token_id", "eos_token_id"),  # decide no block's numbers
)


@dataclass(frozen=True)
class Component:
    """A head of a block, or its MLP where no head is named."""

    layer: int
    head: int | None = None

    @property
    def name(self) -> str:
        return f"MLP{self.layer}" if self.head is None else f"L{self.layer}H{self.head}"


@dataclass(frozen=True)
class Passed:
    """Texts of the same length on their way: `states[l]` enters block l, the last one leaves the last block."""

    states: States
    beside: list[tuple[tuple[Any, ...], dict[str, Any]]]

    def last_places(self, after: int) -> Float[np.ndarray, "text d_model"]:
        """The state of each text's last place after block `after`."""
        return last_places(self.states[after + 1])

    def all_places(self, after: int) -> Float[np.ndarray, "text place d_model"]:
        """The states of all places after a block."""
        return np.array(self.states[after + 1].numpy())


def last_places(states: torch.Tensor) -> Float[np.ndarray, "text d_model"]:
    return np.array(states[:, -1].numpy())


def check_depth(checkpoint: Checkpoint, n_blocks: int) -> None:
    """Refuse more blocks than the model has."""
    depth = depth_of(checkpoint.config)
    if n_blocks > depth:
        raise RangeError(f"{n_blocks} blocks were asked for; {checkpoint.name} has {depth}: ask for {depth} or fewer")


def check_layer(checkpoint: Checkpoint, layer: int) -> None:
    """Refuse a layer that the model does not have."""
    depth = depth_of(checkpoint.config)
    if layer >= depth:
        raise RangeError(
            f"layer {layer} was asked for; {checkpoint.name} has layers 0 to {depth - 1}: ask for one of them"
        )


def refuse_layers(checkpoint: Checkpoint, n_blocks: int) -> None:
    """Refuse early what could not be run: without the extra, of an unknown type, more blocks than there are."""
    require_extra("running the real model's first blocks", checkpoint.folder)
    spec_of(checkpoint.config)
    check_depth(checkpoint, n_blocks)


def open_blocks(checkpoint: Checkpoint, n_blocks: int, n_heads: int, dtype: str = "float32") -> FirstBlocks:
    """Load the first blocks of a checkpoint's real model: only their tensors are read, or fetched from the hub."""
    refuse_layers(checkpoint, n_blocks)
    modules = spec_of(checkpoint.config).modules
    _check_memory(checkpoint, n_blocks)
    real = checkpoint.blocks_folder(n_blocks) or checkpoint.model
    with their_failures(checkpoint.name), quiet_transformers(), _precision(dtype):
        import torch

        loaded = load_blocks(real, n_blocks, getattr(torch, dtype))
        _refuse_missing(loaded, modules, checkpoint.name)
        _refuse_left_out(loaded, checkpoint, n_blocks)
        _refuse_other_sizes(loaded, checkpoint)
        return FirstBlocks(loaded.model, modules, n_blocks, n_heads, dtype, checkpoint.name)


def _check_memory(checkpoint: Checkpoint, n_blocks: int) -> None:
    refuse_too_large(
        4 * blocks_size(checkpoint, n_blocks),
        f"{checkpoint.name}: {what_is_loaded(checkpoint, n_blocks)} in float32",
        remedy_of_memory(checkpoint, "fewer"),
    )


def what_is_loaded(checkpoint: Checkpoint, n_blocks: int) -> str:
    """Which blocks of the real model are there at once?"""
    if is_in_a_file(checkpoint):
        return "all blocks, which are read of a GGUF file,"
    return "the first block" if n_blocks == 1 else f"the first {n_blocks} blocks"


def remedy_of_memory(checkpoint: Checkpoint, less: str = "") -> str:
    """What to do where that is too much; `less` is what may be asked for instead."""
    if is_in_a_file(checkpoint):
        return "give the checkpoint as safetensors"
    return f"ask for {less}, or on a machine with more memory" if less else "ask on a machine with more memory"


def is_in_a_file(checkpoint: Checkpoint) -> bool:
    """Is it a GGUF file?"""
    return checkpoint.folder is not None and checkpoint.folder.is_file()


def _refuse_missing(loaded: Loaded, modules: Modules, name: str) -> None:
    """A tensor that is not in the files would be random."""
    absent = sorted(
        tensor for tensor in loaded.missing if f".{modules.blocks}." in f".{tensor}" and modules.part in tensor
    )
    if absent:
        raise CheckpointError(
            f"{name}: tensor {absent[0]!r} is missing, so its first blocks can't be run; give the whole checkpoint"
        )


def _refuse_left_out(loaded: Loaded, checkpoint: Checkpoint, n_blocks: int) -> None:
    """Of a GGUF file transformers drops tensors without a word for which its config leaves no place, such as biases."""
    source = source_of(checkpoint, n_blocks)
    left_out = source.left_out(loaded.model.state_dict().keys()) if isinstance(source, GGUFFile) else []
    if left_out:
        raise UnsupportedModelError(
            f"{checkpoint.name}: transformers leaves the tensor {left_out[0]!r} of this GGUF file out, so its first "
            "blocks can't be run as they are; give the checkpoint as safetensors"
        )


def _refuse_other_sizes(loaded: Loaded, checkpoint: Checkpoint) -> None:
    """Settings of a GGUF file that transformers does not read are its own usual ones, such as Qwen3's 128 a head."""
    if not is_in_a_file(checkpoint):
        return
    for name, ours in checkpoint.config.items():
        if name in NO_SAY:
            continue
        theirs = _setting(loaded.model.config, name)
        if isinstance(ours, int | float) and theirs is not None and not _alike(ours, theirs):
            raise UnsupportedModelError(
                f"{checkpoint.name}: transformers takes {shown(theirs)} for {name}, but the GGUF file says "
                f"{shown(ours)}, so its first blocks can't be run as they are; give the checkpoint as safetensors"
            )


def _setting(config: Any, name: str) -> Any:
    turning = getattr(config, "rope_parameters", None) or {}
    return turning.get(name) if name in turning else getattr(config, name, None)


def _alike(ours: float, theirs: Any) -> bool:
    return isinstance(theirs, int | float) and isclose(ours, theirs, rel_tol=1e-6)


def _precision(dtype: str) -> AbstractContextManager[None]:
    return in_double_precision() if dtype == "float64" else nullcontext()


class Enough(Exception):
    """The block is reached up to which a text was to be run."""


class FirstBlocks:
    """The first blocks of a real model, to be run on tokens."""

    def __init__(self, whole: Any, modules: Modules, n_blocks: int, n_heads: int, dtype: str, name: str) -> None:
        self.n_heads, self.dtype, self.name = n_heads, dtype, name
        self.class_name = class_name(whole)
        self._model = whole.get_submodule(modules.part) if modules.part else whole
        self._blocks = list(self._model.get_submodule(modules.blocks))[:n_blocks]
        self._now = threading.local()
        for layer, block in enumerate(self._blocks):
            block.register_forward_pre_hook(self._keep_entering, with_kwargs=True)
            block.get_submodule(modules.projection).register_forward_pre_hook(self._silence_head(layer))
            block.get_submodule(modules.mlp).register_forward_hook(self._silence_mlp(layer))
        self._blocks[-1].register_forward_hook(self._keep_leaving)

    @property
    def n_blocks(self) -> int:
        return len(self._blocks)

    def run(self, token_ids: Int[np.ndarray, "text place"], until: int | None = None) -> Passed:
        """Texts of the same length through all blocks, or up to what enters block `until`."""
        import torch

        caught = self._now.caught = Passed([], [])
        self._now.until = until
        try:
            with their_failures(self.name), suppress(Enough), torch.inference_mode(), _precision(self.dtype):
                self._model(torch.from_numpy(np.ascontiguousarray(token_ids, np.int64)))
        finally:
            self._now.caught = None
        return caught

    def again(self, passed: Passed, without: Component, after: int) -> Float[np.ndarray, "text d_model"]:
        """The state of each text's last place after block `after`, one head or MLP of a block up to it being off."""
        import torch

        states = passed.states[without.layer]
        with torch.inference_mode(), self._wide(), self._switched_off(without):
            for layer in range(without.layer, after + 1):
                states = self._through(layer, states, passed)
        return last_places(states)

    def config_list(self, name: str) -> list[Any]:
        """A list of the model's config with an entry for each block; empty where it has none."""
        return list(getattr(self._model.config, name, None) or [])

    def scores(
        self, passed: Passed, layer: int, entering: Float[np.ndarray, "text place d_model"] | None = None
    ) -> tuple[Float[np.ndarray, "text head query key"], Float[np.ndarray, "text head query key"]]:
        """What enters the softmax of one block's attention (the mask included), and what leaves it.

        Other states than the texts' own may enter the block.
        """
        import torch

        states = passed.states[layer] if entering is None else torch.from_numpy(entering)
        catching = _softmax_catcher()
        with torch.inference_mode(), self._wide(), catching:
            self._through(layer, states, passed)
        scores, attention = catching.caught
        return scores.numpy(), attention.numpy()

    def _through(self, layer: int, states: torch.Tensor, passed: Passed) -> torch.Tensor:
        args, named = passed.beside[layer]
        if "hidden_states" in named:
            return _first(self._blocks[layer](*args, **named | {"hidden_states": states}))
        return _first(self._blocks[layer](states, *args[1:], **named))

    def _wide(self) -> AbstractContextManager[None]:
        return widened() if self.dtype == "float64" else nullcontext()

    @contextmanager
    def _switched_off(self, component: Component) -> Iterator[None]:
        self._now.off = component
        try:
            yield
        finally:
            self._now.off = None

    def _keep_entering(self, _block: Any, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        caught = getattr(self._now, "caught", None)
        if caught is not None:
            caught.states.append(named["hidden_states"] if "hidden_states" in named else args[0])
            caught.beside.append((args, named))
            if len(caught.states) - 1 == self._now.until:
                raise Enough

    def _keep_leaving(self, _block: Any, _inputs: Any, output: Any) -> None:
        caught = getattr(self._now, "caught", None)
        if caught is not None:
            caught.states.append(_first(output))
            raise Enough  # of a GGUF file later blocks are there too

    def _silence_head(self, layer: int) -> Any:
        def silence(_projection: Any, inputs: Any) -> Any:
            off = getattr(self._now, "off", None)
            if off is None or off.layer != layer or off.head is None:
                return None
            mixed = inputs[0].clone()
            mixed.view(*mixed.shape[:-1], self.n_heads, -1)[..., off.head, :] = 0
            return (mixed, *inputs[1:])

        return silence

    def _silence_mlp(self, layer: int) -> Any:
        def silence(_mlp: Any, _inputs: Any, output: Any) -> Any:
            if getattr(self._now, "off", None) != Component(layer):
                return None
            if isinstance(output, tuple):
                return (output[0].new_zeros(output[0].shape), *output[1:])
            return output.new_zeros(output.shape)

        return silence


def _first(output: Any) -> Any:
    return output[0] if isinstance(output, tuple | list) else output


def _softmax_catcher() -> Any:
    """A mode in which the one softmax over [text, head, query, key] of a block leaves what it takes and gives."""
    from torch.overrides import TorchFunctionMode

    class Catching(TorchFunctionMode):  # type: ignore[misc]
        caught: tuple[Any, Any]

        def __torch_function__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            if getattr(func, "__name__", "") == "softmax" and result.ndim == 4:
                self.caught = (args[0], result)
            return result

    return Catching()


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Every thread of ours computes on one core: threads are the parallelism, and sums keep their order."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def components(n_blocks: int, n_heads: int) -> Sequence[Component]:
    """Every head and every MLP of the first blocks, block by block."""
    return [Component(layer, head) for layer in range(n_blocks) for head in [*range(n_heads), None]]
