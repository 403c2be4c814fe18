"""Tensors of local safetensors files, memory-mapped: only the bytes of requested tensors are read."""

from __future__ import annotations

import mmap
from collections.abc import Collection
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from detoklens.errors import CheckpointError, parse_json, shown
from detoklens.weights.sources import check_finite

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
LENGTH_BYTES = 8
LARGEST_HEADER = 100_000_000  # the format's own limit; GPT-2 XL's header has 65 kB

BYTES_PER_VALUE = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2,
    "I64": 8, "I32": 4, "I16": 2, "I8": 1,
    "U64": 8, "U32": 4, "U16": 2, "U8": 1, "BOOL": 1,
}  # fmt: skip
STORED_TYPES = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": np.uint16}
BLOCK_BYTES = 16 << 20  # converted at a time, so that memory never holds the mapped pages and a whole copy


@dataclass(frozen=True)
class TensorEntry:
    """One tensor: its type as the file names it, its shape, and its bytes `start:end` counted from the file's start."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


def header_length(first_bytes: bytes, file_size: int, where: str) -> int:
    """The length of the header, from the file's first 8 bytes."""
    if len(first_bytes) < LENGTH_BYTES:
        raise CheckpointError(f"{where}: {len(first_bytes)} bytes are not a safetensors file; download the file again")
    length = int.from_bytes(first_bytes[:LENGTH_BYTES], "little")
    if length > min(LARGEST_HEADER, file_size - LENGTH_BYTES):
        raise CheckpointError(
            f"{where}: the header claims {length:,} bytes but the file holds {file_size:,}; "
            "it is truncated or not a safetensors file, download it again"
        )
    return length


def parse_header(first_bytes: bytes, file_size: int, where: str) -> dict[str, TensorEntry]:
    """The file's tensors and their locations; `first_bytes` must include the whole header."""
    length = header_length(first_bytes, file_size, where)
    data_start = LENGTH_BYTES + length
    try:
        header = parse_json(first_bytes[LENGTH_BYTES:data_start])
    except ValueError as error:
        raise CheckpointError(
            f"{where}: the safetensors header is not valid JSON ({error}); download it again"
        ) from error
    entries = {
        name: _entry(name, fields, data_start, file_size, where)
        for name, fields in header.items()
        if name != "__metadata__"
    }
    end = data_start
    for entry in sorted(entries.values(), key=lambda entry: (entry.start, entry.end)):  # the format allows no gaps
        if entry.start != end:
            raise CheckpointError(
                f"{where}: tensor {entry.name!r} begins at byte {entry.start:,}, the one before it ends at {end:,}; "
                "the file is corrupt, download it again"
            )
        end = entry.end
    if end != file_size:
        raise CheckpointError(
            f"{where}: the last tensor ends at byte {end:,} of {file_size:,}; the file is corrupt, download it again"
        )
    return entries


def _entry(name: str, fields: object, data_start: int, file_size: int, where: str) -> TensorEntry:
    match fields:
        case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [int(begin), int(end)]}:
            pass
        case _:
            raise CheckpointError(f"{where}: the header's entry for {name!r} is malformed; download it again")
    if not all(type(size) is int and size >= 0 for size in shape):
        raise CheckpointError(f"{where}: tensor {name!r} has the impossible shape {shown(shape)}; download it again")
    entry = TensorEntry(name, dtype, tuple(shape), data_start + begin, data_start + end)
    if not 0 <= begin <= end or entry.end > file_size:
        raise CheckpointError(
            f"{where}: tensor {name!r} claims bytes {begin:,} to {end:,} of {file_size - data_start:,}; "
            "the file is truncated or corrupt, download it again"
        )
    width = BYTES_PER_VALUE.get(dtype)
    if width is not None and prod(shape) * width != end - begin:
        raise CheckpointError(
            f"{where}: tensor {name!r} of shape {shown(shape)} and type {dtype} can't have {end - begin:,} bytes; "
            "the file is corrupt, download it again"
        )
    return entry


class SafetensorsFolder:
    """The safetensors file, or the shards, of one folder."""

    def __init__(self, folder: Path) -> None:
        self.where = str(folder)
        self._places: dict[str, tuple[Path, TensorEntry]] = {}
        for path in shard_paths(folder):
            if not path.is_file():
                raise CheckpointError(f"{folder}: shard {path.name!r} named by the index is missing; download it too")
            for name, entry in read_header(path).items():
                other, _ = self._places.setdefault(name, (path, entry))
                if other != path:
                    raise CheckpointError(f"{folder}: tensor {name!r} is in {other.name} and in {path.name}; keep one")

    def names(self) -> Collection[str]:
        return self._places.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        return self._places[name][1].shape

    def read(self, name: str, dtype: np.dtype[Any]) -> np.ndarray:
        path, entry = self._places[name]
        return _read_tensor(path, entry, dtype)


def has_safetensors(folder: Path) -> bool:
    return (folder / SINGLE_FILE).is_file() or (folder / INDEX_FILE).is_file()


def read_header(path: Path) -> dict[str, TensorEntry]:
    """The file's tensors and their locations."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = header_length(file.read(LENGTH_BYTES), size, str(path))
        file.seek(0)
        return parse_header(file.read(LENGTH_BYTES + length), size, str(path))


def read_json_file(path: Path) -> dict[str, Any]:
    try:
        return parse_json(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(f"{path} is not valid JSON ({error}); download it again") from error


def read_index(path: Path) -> dict[str, str]:
    """The shard of each tensor; only plain file names are accepted."""
    shard_of = read_json_file(path).get("weight_map")
    if not isinstance(shard_of, dict) or not shard_of or not all(isinstance(name, str) for name in shard_of.values()):
        raise CheckpointError(f"{path}: no weight_map of tensor names to shards; download the index again")
    for name in shard_of.values():
        if name != Path(name).name or "\\" in name or not name.endswith(".safetensors"):
            raise CheckpointError(
                f"{path}: shard {name!r} is not a .safetensors file next to the index; download the index again"
            )
    return shard_of


def shard_paths(folder: Path) -> list[Path]:
    """The safetensors file of a folder, or those that its index names."""
    if (folder / SINGLE_FILE).is_file():
        return [folder / SINGLE_FILE]
    return [folder / name for name in sorted(set(read_index(folder / INDEX_FILE).values()))]


def _read_tensor(path: Path, entry: TensorEntry, dtype: np.dtype[Any]) -> np.ndarray:
    if entry.dtype not in STORED_TYPES:
        raise CheckpointError(
            f"{path}: tensor {entry.name!r} is stored as {entry.dtype}; "
            f"accepted are {', '.join(STORED_TYPES)}: convert the checkpoint to one of them"
        )
    values = np.empty(entry.shape, dtype)
    flat = values.reshape(-1)
    if not flat.size:
        return values
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        stored_type = np.dtype(STORED_TYPES[entry.dtype]).newbyteorder("<")
        step = BLOCK_BYTES // stored_type.itemsize
        for begin in range(0, flat.size, step):
            count = min(step, flat.size - begin)
            stored = np.frombuffer(mapped, stored_type, count, entry.start + begin * stored_type.itemsize)
            if entry.dtype == "BF16":  # the upper half of a float32, which numpy lacks
                stored = (stored.astype(np.uint32) << 16).view(np.float32)
            with np.errstate(over="ignore"):  # overflow gives Inf, which is refused below
                flat[begin : begin + count] = stored
            del stored
            if hasattr(mmap, "MADV_DONTNEED"):
                mapped.madvise(mmap.MADV_DONTNEED)
    check_finite(values, entry.name, str(path))
    return values
