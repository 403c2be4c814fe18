"""Where do tensors come from? One small interface, three kinds: safetensors files, a state dict, a torch pickle.

Each source reads one named tensor at a time into an array of the asked type; nothing else of a checkpoint is touched.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Protocol

import numpy as np

from detoklens.errors import CheckpointError

BLOCK = 1 << 22  # numbers looked at together


class TensorSource(Protocol):
    """Something that holds named tensors."""

    @property
    def where(self) -> str:
        """What to call the source in a message."""
        ...

    def names(self) -> Collection[str]: ...

    def shape(self, name: str) -> tuple[int, ...]: ...

    def read(self, name: str, dtype: np.dtype[Any]) -> np.ndarray: ...


class StateDict:
    """The tensors of a model in memory: torch tensors or arrays. torch itself is never imported here."""

    def __init__(self, tensors: Mapping[str, Any], where: str) -> None:
        self._tensors = tensors
        self.where = where

    def names(self) -> Collection[str]:
        return self._tensors.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._tensors[name].shape)

    def read(self, name: str, dtype: np.dtype[Any]) -> np.ndarray:
        tensor = self._tensors[name]
        if not isinstance(tensor, np.ndarray):
            tensor = _torch_to_array(tensor)
        array = np.array(tensor, dtype=dtype)  # a copy: the model may go on training
        check_finite(array, name, self.where)
        return array


def check_finite(values: np.ndarray, name: str, where: str) -> None:
    """NaN or Inf in a needed tensor would spoil each number that follows, so it is said at once."""
    flat = values.reshape(-1)
    if not all(np.isfinite(flat[begin : begin + BLOCK]).all() for begin in range(0, flat.size, BLOCK)):
        raise CheckpointError(f"{where}: tensor {name!r} holds NaN or Inf; the checkpoint is damaged")


def _torch_to_array(tensor: Any) -> np.ndarray:
    """bfloat16 has no numpy type, so every torch tensor is widened by its own methods first."""
    tensor = tensor.detach().cpu()
    wide = tensor.double() if str(tensor.dtype) == "torch.float64" else tensor.float()
    return np.asarray(wide.numpy())
