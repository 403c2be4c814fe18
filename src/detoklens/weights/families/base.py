"""What does a family of models have to say? One file per family answers through this small interface.

A family names the tensors it needs, refuses configurations it does not compute exactly, and returns a FirstLayer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Protocol

import numpy as np

from detoklens.errors import CheckpointError, UnsupportedModelError
from detoklens.weights.first_layer import FirstLayer
from detoklens.weights.sources import TensorSource

Config = Mapping[str, Any]


class Family(Protocol):
    """A set of checkpoints whose first layer is computed the same way."""

    @property
    def model_types(self) -> tuple[str, ...]:
        """The values of `model_type` in config.json that it reads."""
        ...

    def tensor_names(self, available: Collection[str]) -> list[str]:
        """The tensors of the checkpoint that the first layer needs, and no others."""
        ...

    def read(self, config: Config, source: TensorSource, dtype: np.dtype[Any]) -> FirstLayer: ...


class LayerReader:
    """Reads tensors by their name within the model, with or without a prefix, and asserts their shapes."""

    def __init__(self, source: TensorSource, prefix: str, dtype: np.dtype[Any]) -> None:
        self._source, self._prefix, self._dtype = source, prefix, dtype

    def read(self, name: str, shape: tuple[int | None, ...]) -> np.ndarray:
        """One tensor, whose shape is looked at before its bytes; None in `shape` takes any size above 0."""
        full_name = self._prefix + name
        if full_name not in self._source.names():
            raise CheckpointError(f"{self._source.where}: tensor {full_name!r} is missing; is the checkpoint whole?")
        found = self._source.shape(full_name)
        fits = len(found) == len(shape) and all(
            have > 0 if want is None else have == want for want, have in zip(shape, found, strict=True)
        )
        if not fits:
            wanted = tuple("any" if size is None else size for size in shape)
            raise CheckpointError(
                f"{self._source.where}: tensor {full_name!r} has shape {found}, "
                f"but the config asks for {wanted}; config.json and weights don't belong together"
            )
        return self._source.read(full_name, self._dtype)


def find_prefix(available: Collection[str], name: str, prefixes: tuple[str, ...]) -> str:
    """Under which prefix does the checkpoint keep its tensors? The first one that fits, else the shortest."""
    return next((prefix for prefix in prefixes if prefix + name in available), prefixes[-1])


def whole_number(config: Config, *names: str) -> int:
    """A size from the config, under the first of these names that it has."""
    value = next((config[name] for name in names if config.get(name) is not None), None)
    if type(value) is not int or value < 1:
        raise CheckpointError(f"config.json: {' or '.join(names)} must be a whole number above 0, not {value!r}")
    return value


def stated_size(config: Config, *names: str) -> int | None:
    """A size that a config need not repeat: None where it does not."""
    return whole_number(config, *names) if any(config.get(name) is not None for name in names) else None


def yes_or_no(config: Config, name: str, default: bool) -> bool:
    """A switch of the config; anything but true and false is refused, since it would be taken for true."""
    value = config.get(name, default)
    if not isinstance(value, bool):
        raise CheckpointError(f"config.json: {name} must be true or false, not {value!r}")
    return value


def head_size(d_model: int, n_heads: int) -> int:
    if d_model % n_heads:
        raise CheckpointError(f"config.json: {n_heads} heads do not divide the width {d_model}")
    return d_model // n_heads


# Words in the name of an attribute that may change how layer 0 attends. An unknown attribute with one of them is
# refused, so that a knob invented later can't change results silently; the others are other layers' business.
TELLING_WORDS = (
    "attn", "attention", "scale", "scaling", "norm", "epsilon", "rope", "rotary", "alibi", "position", "bias",
    "embd", "embed", "embedding", "quant", "quantization", "window", "sparse", "qk", "softcap", "parallel",
    "adapter", "lora",
)  # fmt: skip


def refuse_unhandled(config: Config, handled: Collection[str], irrelevant: Collection[str]) -> None:
    """Refuse by name and value an attribute that would change the computation and is not handled."""
    for name, value in config.items():
        if name in handled or name in irrelevant or value in (None, False):
            continue
        if any(word in TELLING_WORDS for word in name.lower().replace("-", "_").split("_")):
            raise UnsupportedModelError(
                f"config.json: {name} = {value!r} may change the first layer and is not handled; "
                "remove it if it has no effect on layer 0's attention"
            )
