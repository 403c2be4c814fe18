"""Sources of tensors: safetensors files, a state dict, a torch pickle or a GGUF file behind one interface.

A source reads one named tensor at a time into an array of the requested type; nothing else of a checkpoint is read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Protocol

import numpy as np

from detoklens.errors import CheckpointError, UnsupportedModelError, shown

BLOCK = 1 << 22  # numbers checked at a time
ACCEPTED = ("float64", "float32", "float16", "bfloat16")


class TensorSource(Protocol):
    """Something that holds named tensors."""

    @property
    def where(self) -> str:
        """The source's name in messages."""
        ...

    def names(self) -> Collection[str]: ...

    def shape(self, name: str) -> tuple[int, ...]: ...

    def read(self, name: str, dtype: np.dtype[Any]) -> np.ndarray: ...


WRAPPERS = ("original_model", "_orig_mod", "module")
"""Where wrappers hold the model: TransformerLens' bridges, torch.compile, DataParallel."""
BRIDGED = "._original_component"
"""What a bridge inserts into tensor names, after every module that it wraps."""


def unwrapped(model: Any) -> Any:
    """The transformers model inside a wrapper; the model itself without one."""
    if getattr(model, "_weights_processed", False) is True:
        raise UnsupportedModelError(
            "TransformerLens has changed this bridge's weights (enable_compatibility_mode), so they may give another "
            "attention than the model's; pass the bridge before that, or the transformers model"
        )
    for name in WRAPPERS:
        inside = getattr(model, name, None)
        if hasattr(inside, "state_dict") and hasattr(inside, "config"):
            return unwrapped(inside)
    return model


def tensors_of(model: Any) -> dict[str, Any]:
    """The tensors of a model in memory, under transformers' names."""
    return {name.replace(BRIDGED, ""): tensor for name, tensor in model.state_dict().items()}


class StateDict:
    """The tensors of a model in memory: torch tensors or arrays. torch is not imported."""

    def __init__(self, tensors: Mapping[str, Any], where: str) -> None:
        self._tensors = tensors
        self.where = where

    def names(self) -> Collection[str]:
        return self._tensors.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.plain(name).shape)

    def read(self, name: str, dtype: np.dtype[Any]) -> np.ndarray:
        tensor = self.plain(name)
        if not isinstance(tensor, np.ndarray):
            tensor = _torch_to_array(tensor)
        array = np.array(tensor, dtype=dtype)  # a copy: the model may go on training
        check_finite(array, name, self.where)
        return array

    def plain(self, name: str) -> Any:
        """The tensor, if it is a plain array of stored numbers."""
        tensor = self._tensors[name]
        oddity = _oddity(tensor)
        if oddity is not None:
            raise CheckpointError(
                f"{self.where}: tensor {name!r} is {oddity}; accepted are plain tensors of {', '.join(ACCEPTED)}: "
                "convert the checkpoint to one of them"
            )
        return tensor


def check_finite(values: np.ndarray, name: str, where: str) -> None:
    """Refuse a tensor with NaN or Inf."""
    flat = values.reshape(-1)
    if not all(np.isfinite(flat[begin : begin + BLOCK]).all() for begin in range(0, flat.size, BLOCK)):
        raise CheckpointError(f"{where}: tensor {name!r} holds NaN or Inf; the checkpoint is damaged")


def _oddity(tensor: Any) -> str | None:
    """What makes a tensor not plain, if anything; shapes are checked against the stored bytes before reading."""
    if not (hasattr(tensor, "dtype") and hasattr(type(tensor), "shape")):
        return f"not a tensor but of type {type(tensor).__name__}"
    kind = str(tensor.dtype).removeprefix("torch.")
    if kind not in ACCEPTED:
        return f"stored as {kind}"
    if isinstance(tensor, np.ndarray):
        return None
    if tensor.device.type == "meta":
        return "without numbers (on the device meta)"
    if tensor.is_nested or str(tensor.layout) != "torch.strided":
        return "sparse or nested"
    if tensor.untyped_storage().nbytes() < tensor.numel() * tensor.element_size():
        return f"of shape {shown(tuple(tensor.shape))} but fewer numbers are stored"
    return None


def _torch_to_array(tensor: Any) -> np.ndarray:
    """Convert to numpy; torch widens the tensor first, since numpy has no bfloat16."""
    wide = tensor.double() if str(tensor.dtype) == "torch.float64" else tensor.float()
    return np.asarray(wide.numpy(force=True))  # detached, on the CPU, signs resolved
