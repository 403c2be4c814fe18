"""Tensors of a local checkpoint, by memory map: only the bytes of the tensors that are asked for are read."""

from __future__ import annotations

import mmap
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from detoklens.errors import CheckpointError
from detoklens.weights.safetensors_header import LENGTH_BYTES, TensorEntry, header_length, parse_header
from detoklens.weights.sources import check_finite
from detoklens.weights.strict_json import parse_json

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
BLOCK_BYTES = 16 << 20  # converted at a time, so that the map's pages never stand beside a whole copy

STORED_TYPES = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": np.uint16}


class SafetensorsFolder:
    """The safetensors file, or the shards, of one folder."""

    def __init__(self, folder: Path) -> None:
        self.where = str(folder)
        self._places: dict[str, tuple[Path, TensorEntry]] = {}
        for path in _files(folder):
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
    """Which tensors does this file hold, and where?"""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = header_length(file.read(LENGTH_BYTES), size, str(path))
        file.seek(0)
        return parse_header(file.read(LENGTH_BYTES + length), size, str(path))


def shard_names(index: object, where: str) -> list[str]:
    """The shards that an index names: plain file names beside it, nothing that leads elsewhere."""
    match index:
        case {"weight_map": dict(weight_map)} if all(isinstance(name, str) for name in weight_map.values()):
            names = sorted(set(weight_map.values()))
        case _:
            raise CheckpointError(f"{where}: no weight_map of tensor names to shards; download the index again")
    for name in names:
        if name != Path(name).name or "\\" in name or not name.endswith(".safetensors"):
            raise CheckpointError(f"{where}: shard {name!r} is not a .safetensors file beside the index")
    return names


def _files(folder: Path) -> list[Path]:
    if (folder / SINGLE_FILE).is_file():
        return [folder / SINGLE_FILE]
    index_path = folder / INDEX_FILE
    try:
        index = parse_json(index_path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(f"{index_path}: not valid JSON ({error}); download it again") from error
    paths = [folder / name for name in shard_names(index, str(index_path))]
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        raise CheckpointError(f"{folder}: shard {missing[0]!r} named by the index is missing; download it too")
    return paths


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
            with np.errstate(over="ignore"):  # what does not fit the type is Inf, and refused as such below
                flat[begin : begin + count] = _widen(stored, entry.dtype)
            del stored
            _release_pages(mapped)
    check_finite(values, entry.name, str(path))
    return values


def _widen(stored: np.ndarray, stored_as: str) -> np.ndarray:
    """bfloat16 is the upper half of a float32; the other types numpy knows."""
    if stored_as != "BF16":
        return stored
    return (stored.astype(np.uint32) << 16).view(np.float32)


def _release_pages(mapped: mmap.mmap) -> None:
    if hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)
