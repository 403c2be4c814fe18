"""What does a family of models have to say? One file per family answers through this small interface.

A family names the tensors it needs, refuses configurations it does not compute exactly, and returns a FirstLayer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

import numpy as np

from detoklens.errors import CheckpointError, UnsupportedModelError, shown
from detoklens.weights.first_layer import FirstLayer
from detoklens.weights.norm import Norm, NormKind
from detoklens.weights.rest_of_block import RestOfBlock
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

    def rest_names(self, available: Collection[str]) -> list[str]:
        """The tensors that the rest of the first block needs; none where it is not computed."""
        ...

    def read_rest(self, config: Config, source: TensorSource, dtype: np.dtype[Any]) -> RestOfBlock:
        """The first block's second norm and MLP; refused by name where they are not computed exactly."""
        ...

    def block_names(self, available: Collection[str], n_blocks: int) -> list[str]:
        """The tensors of the first blocks, and those in no block, such as embeddings."""
        ...

    def blocks_stem(self, available: Collection[str]) -> str:
        """What the names of the blocks' tensors begin with, in front of the block's number."""
        ...


class NamedTensors:
    """A family whose tensors have fixed names under one of some prefixes: the first is the token embedding.

    `optional` tensors, such as biases, are there or not, as the config says.
    """

    prefixes: tuple[str, ...] = ("",)
    tensors: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    rest: tuple[str, ...] = ()
    optional_rest: tuple[str, ...] = ()

    def tensor_names(self, available: Collection[str]) -> list[str]:
        return self._names(available, self.tensors, self.optional)

    def rest_names(self, available: Collection[str]) -> list[str]:
        return self._names(available, self.rest, self.optional_rest)

    def block_names(self, available: Collection[str], n_blocks: int) -> list[str]:
        prefix = find_prefix(available, self.tensors[0], self.prefixes)
        numbered = re.compile(rf"{re.escape(self.blocks_stem(available))}(\d+)\.")
        found = {name: numbered.match(name) for name in available if name.startswith(prefix)}
        return sorted(name for name, block in found.items() if block is None or int(block[1]) < n_blocks)

    def blocks_stem(self, available: Collection[str]) -> str:
        in_a_block = next(name for name in self.tensors if ".0." in name)
        prefix = find_prefix(available, self.tensors[0], self.prefixes)
        return f"{prefix}{in_a_block.partition('.0.')[0]}."

    def reader(self, source: TensorSource, dtype: np.dtype[Any]) -> LayerReader:
        return LayerReader(source, find_prefix(source.names(), self.tensors[0], self.prefixes), dtype)

    def _names(self, available: Collection[str], needed: tuple[str, ...], optional: tuple[str, ...]) -> list[str]:
        prefix = find_prefix(available, self.tensors[0], self.prefixes)
        there = [name for name in optional if prefix + name in available]
        return [prefix + name for name in (*needed, *there)]


class LayerReader:
    """Reads tensors by their name within the model, with or without a prefix, and asserts their shapes."""

    def __init__(self, source: TensorSource, prefix: str, dtype: np.dtype[Any]) -> None:
        self._source, self._prefix, self._dtype = source, prefix, dtype

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._dtype

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
                f"{self._source.where}: tensor {full_name!r} has shape {shown(found)}, "
                f"but the config asks for {wanted}; config.json and weights don't belong together"
            )
        return self._source.read(full_name, self._dtype)

    def linear(self, name: str, d_in: int, d_out: int) -> np.ndarray:
        """The weight of a linear layer, stored [out, in], as [in, out]."""
        return np.ascontiguousarray(self.read(name, (d_out, d_in)).T)

    def bias(self, name: str, size: int, is_there: bool = True) -> np.ndarray:
        """A bias; zeros where the config says that there is none, and then a tensor of that name is a contradiction."""
        if is_there:
            return self.read(name, (size,))
        if self._prefix + name in self._source.names():
            raise CheckpointError(
                f"{self._source.where}: tensor {self._prefix + name!r} is there, but config.json says there is no such "
                "bias; config.json and weights don't belong together"
            )
        return np.zeros(size, self._dtype)

    def norm(self, name: str, size: int, kind: NormKind, epsilon: float, added_gain: float = 0.0) -> Norm:
        """A norm's gain and, for LayerNorm, bias; `added_gain` is what the model adds to the stored gain."""
        gain = self.read(f"{name}.weight", (size,))
        if added_gain:
            gain = (gain.astype(np.float64) + added_gain).astype(self._dtype)
        return Norm(kind, gain, self.read(f"{name}.bias", (size,)) if kind == "layer" else None, epsilon)


def find_prefix(available: Collection[str], name: str, prefixes: tuple[str, ...]) -> str:
    """Under which prefix does the checkpoint keep its tensors? The first one that fits, else the shortest."""
    return next((prefix for prefix in prefixes if prefix + name in available), prefixes[-1])


def whole_number(config: Config, *names: str) -> int:
    """A size from the config, under any of these names, which mean the same: where several are there, they agree."""
    stated = {name: config[name] for name in names if config.get(name) is not None}
    value = next(iter(stated.values()), None)
    if any(other != value for other in stated.values()):
        contradiction = ", ".join(f"{name} = {shown(other)}" for name, other in stated.items())
        raise CheckpointError(f"config.json contradicts itself: {contradiction} mean the same; keep the right one")
    if type(value) is not int or not 1 <= value < LARGEST_SIZE:
        raise CheckpointError(f"config.json: {' or '.join(names)} must be a whole number above 0, not {shown(value)}")
    return value


LARGEST_SIZE = 1 << 31


def stated_size(config: Config, *names: str) -> int | None:
    """A size that a config need not repeat: None where it does not."""
    return whole_number(config, *names) if any(config.get(name) is not None for name in names) else None


def padding_token(config: Config, default: int) -> int | None:
    """The id of the padding token; None where the config says that there is none."""
    padding = config.get("pad_token_id", default)
    if padding is not None and (type(padding) is not int or not 0 <= padding < LARGEST_SIZE):
        raise CheckpointError(f"config.json: pad_token_id must be a whole number from 0 up, not {shown(padding)}")
    return padding


def epsilon_of(config: Config, name: str, default: float | None = None) -> float:
    """A norm's ε; GPT-2s trained to do without LayerNorm set it to 1e12."""
    epsilon = config.get(name, default)
    largest = float(np.finfo(np.float32).max)
    if not isinstance(epsilon, int | float) or isinstance(epsilon, bool) or not 0 <= epsilon <= largest:
        raise CheckpointError(f"config.json: {name} must be a number from 0 up, not {shown(epsilon)}")
    return float(epsilon)


def activation_of(config: Config, name: str, default: str, exact: Mapping[str, str] | None = None) -> str:
    """The MLP's activation, by the name that `scores.block` knows it under; any other is refused by name."""
    known = ACTIVATION_NAMES if exact is None else exact
    stated = config.get(name, default)
    if not isinstance(stated, str) or stated not in known:
        raise UnsupportedModelError(
            f"config.json: {name} = {shown(stated)} is not computed, so neither is the first block's output; "
            f"supported are: {', '.join(known)}"
        )
    return known[stated]


ACTIVATION_NAMES = {
    "gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "silu": "silu", "swish": "silu",
    "relu": "relu",
}  # fmt: skip


def transform_rows(table: np.ndarray, transform: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """A table with its rows changed in float64, some at a time; in place where the width stays."""
    width = transform(table[:1].astype(np.float64)).shape[1]
    target = table if width == table.shape[1] else np.empty((len(table), width), table.dtype)
    for begin in range(0, len(table), TRANSFORMED_ROWS):
        rows = slice(begin, begin + TRANSFORMED_ROWS)
        target[rows] = transform(table[rows].astype(np.float64))
    return target


TRANSFORMED_ROWS = 2048  # of a table in float64 at a time: 64 MB at a width of 4,096


def yes_or_no(config: Config, name: str, default: bool) -> bool:
    """A switch of the config; anything but true and false is refused, since it would be taken for true."""
    value = config.get(name, default)
    if not isinstance(value, bool):
        raise CheckpointError(f"config.json: {name} must be true or false, not {shown(value)}")
    return value


def head_size(d_model: int, n_heads: int) -> int:
    if d_model % n_heads:
        raise CheckpointError(f"config.json: {n_heads} heads do not divide the width {d_model}")
    return d_model // n_heads


# Words in the name of an attribute that may change how layer 0 attends. An unknown attribute with one of them is
# refused, so that a knob invented later can't change results silently; the others are other layers' business.
TELLING_WORDS = (
    "attn", "attention", "scale", "scaling", "norm", "epsilon", "rope", "rotary", "alibi", "position", "bias",
    "embd", "embed", "embeddings", "embedding", "quant", "quantization", "window", "sparse", "qk", "softcap",
    "softcapping", "parallel", "adapter", "lora",
)  # fmt: skip


def refuse_unhandled(config: Config, handled: Collection[str], irrelevant: Collection[str]) -> None:
    """Refuse by name and value an attribute that would change the computation and is not handled."""
    for name, value in config.items():
        if name in handled or name in irrelevant or value in (None, False):
            continue
        if any(word in TELLING_WORDS for word in name.lower().replace("-", "_").split("_")):
            raise UnsupportedModelError(
                f"config.json: {name} = {shown(value)} may change the first layer and is not handled; "
                "remove it if it has no effect on layer 0's attention"
            )
