"""What does a GGUF file hold? Its settings and where its tensors lie, read with suspicion.

A file is: `GGUF`, a version, the numbers of tensors and settings; the settings (name, type, value); each tensor's name,
sizes (fastest first), type and place; and, aligned, the tensors' bytes. All numbers are little endian. Each length
comes from a stranger, so none is believed before it is compared with the bytes that are left.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
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
BlockSizes = Mapping[int, tuple[int, int]]  # numbers and bytes of a block, by the tensor's type


@dataclass(frozen=True)
class GGUFTensor:
    """One tensor: its type's number, its shape as numpy has it (slowest first), and its bytes `start:end`."""

    name: str
    kind: int
    shape: tuple[int, ...]
    start: int
    end: int


@dataclass(frozen=True)
class GGUFHeader:
    """The settings and tensors of a file."""

    settings: Mapping[str, Any]
    tensors: Mapping[str, GGUFTensor]


def read_gguf_header(path: Path, block_sizes: BlockSizes) -> GGUFHeader:
    """Which settings and tensors does this file hold?"""
    if path.stat().st_size < len(MAGIC):
        raise CheckpointError(f"{path}: {path.stat().st_size} bytes are no GGUF file; download it again")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        return _Reader(mapped, str(path)).header(block_sizes)


class _Reader:
    """Walks through the bytes, never beyond their end."""

    def __init__(self, mapped: mmap.mmap, where: str) -> None:
        self._bytes, self._where, self._at = mapped, where, 0

    def header(self, block_sizes: BlockSizes) -> GGUFHeader:
        if self._take(len(MAGIC)) != MAGIC:
            raise CheckpointError(f"{self._where}: not a GGUF file; download it again")
        version = self._number("<u4")
        if version not in VERSIONS:
            raise CheckpointError(f"{self._where}: GGUF version {version} is not read; {VERSIONS[0]} and 3 are")
        n_tensors, n_settings = self._number("<u8"), self._number("<u8")
        settings: dict[str, Any] = {}
        for _ in range(n_settings):
            name = self._string()
            if name in settings:
                raise self._damaged(f"the setting {shown(name)} stands twice")
            settings[name] = self._value(self._number("<u4"))
        entries = [self._tensor(block_sizes) for _ in range(n_tensors)]
        return GGUFHeader(settings, self._placed(entries, settings.get("general.alignment", DEFAULT_ALIGNMENT)))

    def _damaged(self, what: str) -> CheckpointError:
        return CheckpointError(f"{self._where}: {what}; the file is cut off or damaged, download it again")

    def _take(self, count: int) -> bytes:
        if count > len(self._bytes) - self._at:
            raise self._damaged(f"{count:,} bytes are announced at byte {self._at:,} of {len(self._bytes):,}")
        self._at += count
        return self._bytes[self._at - count : self._at]

    def _number(self, kind: str) -> int:
        return int(np.frombuffer(self._take(np.dtype(kind).itemsize), kind)[0])

    def _string(self) -> str:
        return self._take(self._number("<u8")).decode("utf-8", "replace")

    def _value(self, kind: int) -> Any:
        if kind == STRING:
            return self._string()
        if kind == ARRAY:
            return self._array(self._number("<u4"), self._number("<u8"))
        return self._scalars(kind, 1)[0].item()

    def _array(self, kind: int, count: int) -> Any:
        if kind != STRING:
            return self._scalars(kind, count)
        if count * 8 > len(self._bytes) - self._at:
            raise self._damaged(f"{count:,} texts are announced at byte {self._at:,} of {len(self._bytes):,}")
        return [self._string() for _ in range(count)]

    def _scalars(self, kind: int, count: int) -> np.ndarray:
        if kind not in SCALARS:
            raise self._damaged(f"a setting has the unknown type {kind}")
        dtype = np.dtype(SCALARS[kind])
        return np.frombuffer(self._take(count * dtype.itemsize), dtype)

    def _tensor(self, block_sizes: BlockSizes) -> GGUFTensor:
        """Its place still counted from the beginning of the tensors."""
        name, n_dimensions = self._string(), self._number("<u4")
        if not 1 <= n_dimensions <= MOST_DIMENSIONS:
            raise self._damaged(f"tensor {shown(name)} has {n_dimensions} dimensions")
        sizes = [self._number("<u8") for _ in range(n_dimensions)]
        kind, start = self._number("<u4"), self._number("<u8")
        if kind not in block_sizes:
            raise self._damaged(f"tensor {shown(name)} has the unknown type {kind}")
        numbers, width = block_sizes[kind]
        if sizes[0] % numbers or not all(sizes):
            raise self._damaged(f"tensor {shown(name)} has the impossible shape {shown(tuple(sizes))}")
        return GGUFTensor(name, kind, tuple(reversed(sizes)), start, start + prod(sizes) // numbers * width)

    def _placed(self, entries: Iterable[GGUFTensor], alignment: Any) -> dict[str, GGUFTensor]:
        if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
            raise self._damaged(f"the alignment {shown(alignment)} is no power of two")
        begin, end = -(-self._at // alignment) * alignment, 0
        placed: dict[str, GGUFTensor] = {}
        for entry in sorted(entries, key=lambda entry: entry.start):
            if entry.name in placed:
                raise self._damaged(f"tensor {shown(entry.name)} stands twice")
            if entry.start < end or begin + entry.end > len(self._bytes):
                raise self._damaged(f"tensor {shown(entry.name)} claims bytes of another, or beyond the file's end")
            end = entry.end
            placed[entry.name] = GGUFTensor(entry.name, entry.kind, entry.shape, begin + entry.start, begin + entry.end)
        return placed
