"""The header of a GGUF file: its settings, and the type, shape and place of each tensor.

A file consists of `GGUF`, a version, the numbers of tensors and settings; the settings (name, type, value); each
tensor's name, sizes (fastest first), type and offset; and the aligned bytes of the tensors. All numbers are little
endian. The file is untrusted: every length is checked against the bytes that are left.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import isfinite, prod
from pathlib import Path
from typing import Any

import numpy as np

from detoklens.errors import CheckpointError, shown

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MOST_DIMENSIONS = 4
DEFAULT_ALIGNMENT = 32
STRING, ARRAY = 8, 9
SCALARS = {
    0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?", 10: "<u8", 11: "<i8", 12: "<f8",
}  # fmt: skip
MOST_SETTINGS, MOST_TENSORS = 10_000, 1_000_000  # the largest models have some 100 and some 100,000
LARGEST_SIZE = 2**32 - 1  # llama.cpp reads sizes as uint32
BlockSizes = Mapping[int, tuple[int, int]]  # numbers and bytes of a block, by the tensor's type


def _is_size(value: Any, least: int = 1) -> bool:
    return type(value) is int and least <= value <= LARGEST_SIZE


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and isfinite(value) and value >= 0


def _is_array(value: Any, kinds: str) -> bool:
    """Whether this is an array of finite numbers of one of these numpy kinds: `i`, `u`, `f`, `b`."""
    return isinstance(value, np.ndarray) and value.dtype.kind in kinds and bool(np.isfinite(value).all())


def _is_size_per_layer(value: Any) -> bool:
    of_layers = _is_array(value, "iu") and value.size > 0 and value.min() >= 0 and value.max() <= LARGEST_SIZE
    return _is_size(value) or of_layers


KINDS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    f"a whole number from 1 to {LARGEST_SIZE}": (
        _is_size,
        (
            "attention.key_length attention.sliding_window attention.value_length block_count context_length "
            "embedding_length rope.dimension_count vocab_size"
        ),
    ),
    f"a whole number from 0 to {LARGEST_SIZE}": (
        lambda value: _is_size(value, least=0),
        (
            "expert_count expert_used_count rope.scaling.original_context_length tokenizer.ggml.bos_token_id "
            "tokenizer.ggml.eos_token_id tokenizer.ggml.unknown_token_id"
        ),
    ),
    f"a whole number from 1 to {LARGEST_SIZE}, or one per layer": (
        _is_size_per_layer,
        "attention.head_count attention.head_count_kv feed_forward_length",
    ),
    "a finite number of at least 0": (
        _is_number,
        (
            "attention.layer_norm_epsilon attention.layer_norm_rms_epsilon attention.clamp_kqv "
            "attention.max_alibi_bias rope.scaling.factor"
        ),
    ),
    "a finite number above 0": (
        lambda value: _is_number(value) and value > 0,
        "attn_logit_softcapping rope.freq_base rope.freq_base_swa",
    ),
    "text": (
        lambda value: type(value) is str,
        "general.architecture rope.scaling.type tensor_data_layout tokenizer.ggml.model tokenizer.ggml.pre",
    ),
    "a list of texts": (lambda value: type(value) is list, "tokenizer.ggml.merges tokenizer.ggml.tokens"),
    "true or false": (
        lambda value: type(value) is bool,
        "rope.scaling.finetuned use_parallel_residual tokenizer.ggml.add_space_prefix",
    ),
    "a list of whole numbers": (lambda value: _is_array(value, "iu"), "tokenizer.ggml.token_type"),
    "a list of true and false": (lambda value: _is_array(value, "b"), "attention.sliding_window_pattern"),
    "a list of finite numbers": (lambda value: _is_array(value, "iuf"), "tokenizer.ggml.scores"),
}
"""What each setting that is read may hold, in words and as a check; those of an architecture without its prefix."""


@dataclass(frozen=True)
class GGUFTensor:
    """One tensor: its type's number, its shape as numpy has it (slowest first), and its bytes `start:end`."""

    name: str
    kind: int
    shape: tuple[int, ...]
    start: int
    end: int


def read_gguf_header(path: Path) -> tuple[dict[str, Any], dict[str, GGUFTensor]]:
    """The settings of a file, and its tensors by name."""
    from gguf.constants import GGML_QUANT_SIZES

    if path.stat().st_size < len(MAGIC):
        raise CheckpointError(f"{path}: not a GGUF file ({path.stat().st_size} bytes); download it again")
    block_sizes = {int(kind): sizes for kind, sizes in GGML_QUANT_SIZES.items()}
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        return _Header(mapped, str(path)).read(block_sizes)


def check_settings(settings: Mapping[str, Any], where: str) -> None:
    """Refuse settings of a wrong type or out of range; those that are not read are not checked."""
    architecture = settings.get("general.architecture")
    prefix = f"{architecture}." if type(architecture) is str else "{architecture}."
    for meaning, (accepts, names) in KINDS.items():
        for name in names.split():
            full = name if name.startswith(("general.", "tokenizer.")) else prefix + name
            if full in settings and not accepts(settings[full]):
                raise CheckpointError(
                    f"{where}: the setting {shown(full)} must be {meaning}, not {shown(settings[full])}; convert the "
                    "model to GGUF again"
                )


class _Header:
    """Reads the header's bytes in order and never past their end."""

    def __init__(self, mapped: mmap.mmap, where: str) -> None:
        self._bytes, self._where, self._at = mapped, where, 0

    def read(self, block_sizes: BlockSizes) -> tuple[dict[str, Any], dict[str, GGUFTensor]]:
        """The settings, and the tensors' locations."""
        if self._take(len(MAGIC)) != MAGIC:
            raise CheckpointError(f"{self._where}: not a GGUF file; download it again")
        version = self._number(4)
        if version not in VERSIONS:
            raise CheckpointError(f"{self._where}: GGUF version {version} is not read; {VERSIONS[0]} and 3 are")
        n_tensors, n_settings = self._number(8), self._number(8)
        if n_tensors > MOST_TENSORS or n_settings > MOST_SETTINGS:
            raise self._damaged(f"{n_tensors:,} tensors and {n_settings:,} settings are more than any model has")
        settings: dict[str, Any] = {}
        for _ in range(n_settings):
            name = self._string()
            if name in settings:
                raise self._damaged(f"the setting {shown(name)} occurs twice")
            settings[name] = self._value(self._number(4))
        check_settings(settings, self._where)
        entries = [self._tensor(block_sizes) for _ in range(n_tensors)]
        return settings, self._placed(entries, settings.get("general.alignment", DEFAULT_ALIGNMENT))

    def _damaged(self, what: str) -> CheckpointError:
        return CheckpointError(f"{self._where}: {what}; the file is cut off or damaged, download it again")

    def _take(self, count: int) -> bytes:
        if count > len(self._bytes) - self._at:
            raise self._damaged(f"{count:,} bytes are declared at byte {self._at:,} of {len(self._bytes):,}")
        self._at += count
        return self._bytes[self._at - count : self._at]

    def _number(self, n_bytes: int) -> int:
        return int.from_bytes(self._take(n_bytes), "little")

    def _string(self) -> str:
        return self._take(self._number(8)).decode("utf-8", "replace")

    def _value(self, kind: int) -> Any:
        if kind == STRING:
            return self._string()
        if kind != ARRAY:
            return self._scalars(kind, 1)[0].item()
        kind, count = self._number(4), self._number(8)
        if kind != STRING:
            return self._scalars(kind, count)
        if count * 8 > len(self._bytes) - self._at:
            raise self._damaged(f"{count:,} texts are declared at byte {self._at:,} of {len(self._bytes):,}")
        return [self._string() for _ in range(count)]

    def _scalars(self, kind: int, count: int) -> np.ndarray:
        if kind not in SCALARS:
            raise self._damaged(f"a setting has the unknown type {kind}")
        dtype = np.dtype(SCALARS[kind])
        return np.frombuffer(self._take(count * dtype.itemsize), dtype)

    def _tensor(self, block_sizes: BlockSizes) -> GGUFTensor:
        """A tensor's entry, with offsets relative to the first tensor."""
        name, n_dimensions = self._string(), self._number(4)
        if not 1 <= n_dimensions <= MOST_DIMENSIONS:
            raise self._damaged(f"tensor {shown(name)} has {n_dimensions} dimensions")
        sizes = [self._number(8) for _ in range(n_dimensions)]
        kind, start = self._number(4), self._number(8)
        if kind not in block_sizes:
            raise self._damaged(f"tensor {shown(name)} has the unknown type {kind}")
        numbers, width = block_sizes[kind]
        if sizes[0] % numbers or not all(sizes):
            raise self._damaged(f"tensor {shown(name)} has the impossible shape {shown(tuple(sizes))}")
        return GGUFTensor(name, kind, tuple(reversed(sizes)), start, start + prod(sizes) // numbers * width)

    def _placed(self, entries: Iterable[GGUFTensor], alignment: Any) -> dict[str, GGUFTensor]:
        if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
            raise self._damaged(f"the alignment {shown(alignment)} is not a power of two")
        begin, end = -(-self._at // alignment) * alignment, 0
        placed: dict[str, GGUFTensor] = {}
        for entry in sorted(entries, key=lambda entry: entry.start):
            if entry.name in placed:
                raise self._damaged(f"tensor {shown(entry.name)} occurs twice")
            if entry.start < end or begin + entry.end > len(self._bytes):
                raise self._damaged(
                    f"tensor {shown(entry.name)} overlaps another tensor, or extends beyond the end of the file"
                )
            end = entry.end
            placed[entry.name] = replace(entry, start=begin + entry.start, end=begin + entry.end)
        return placed
