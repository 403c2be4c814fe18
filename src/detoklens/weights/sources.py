"""Sources of tensors: safetensors files, a GGUF file, a model in memory or a torch pickle behind one interface.

A source reads one named tensor at a time into an array of the requested type; nothing else of a checkpoint is read. Of
memory-mapped safetensors files only the bytes of requested tensors are read. GGUF files are read in `gguf_file`.
"""

from __future__ import annotations

import mmap
import warnings
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import Any, Protocol
from zipfile import ZIP_STORED, BadZipFile, ZipFile

import numpy as np

from detoklens.errors import CheckpointError, MissingExtraError, UnsupportedModelError, first_line, parse_json, shown
from detoklens.weights.config import MULTIMODAL

BLOCK = 1 << 22  # numbers checked at a time


class TensorSource(Protocol):
    """Something that holds named tensors."""

    @property
    def where(self) -> str:
        """The source's name in messages."""
        ...

    def names(self) -> Collection[str]: ...

    def shape(self, name: str) -> tuple[int, ...]: ...

    def read(self, name: str, dtype: np.dtype[Any]) -> np.ndarray: ...


def check_finite(values: np.ndarray, name: str, where: str) -> None:
    flat = values.reshape(-1)
    if not all(np.isfinite(flat[begin : begin + BLOCK]).all() for begin in range(0, flat.size, BLOCK)):
        raise CheckpointError(f"{where}: tensor {name!r} holds NaN or Inf; the checkpoint is damaged")


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


ACCEPTED = ("float64", "float32", "float16", "bfloat16")
WRAPPERS = ("original_model", "_orig_mod", "module")
"""Where wrappers hold the model: TransformerLens' bridges, torch.compile, DataParallel."""
LANGUAGE_MODEL = ("language_model", "model")
"""Where a multimodal model holds its language model, perhaps one inside the other."""
BRIDGED = "._original_component"
"""What a bridge inserts into tensor names, after every module that it wraps."""
PICKLE_FILE = "pytorch_model.bin"
LARGEST_DESCRIPTION = 16 << 20  # bytes outside tensors; GPT-2 XL's pickle has 100 kB
NO_CHECKSUM = 0  # written by torch if checksums are turned off
Sums = set[tuple[int, int]]  # size and CRC-32 of each tensor's bytes


def unwrapped(model: Any) -> Any:
    """The transformers model inside a wrapper; the model itself without one."""
    if getattr(model, "_weights_processed", False) is True:
        raise UnsupportedModelError(
            "TransformerLens has changed this bridge's weights (enable_compatibility_mode), so its attention may "
            "differ from the model's; pass the bridge before that call, or the transformers model"
        )
    wrappers = (*WRAPPERS, *LANGUAGE_MODEL) if _is_multimodal(model) else WRAPPERS
    for name in wrappers:
        inside = getattr(model, name, None)
        if hasattr(inside, "state_dict") and hasattr(inside, "config"):
            return unwrapped(inside)
    return model


def _is_multimodal(model: Any) -> bool:
    """Whether this is one of `MULTIMODAL`."""
    return getattr(getattr(model, "config", None), "model_type", None) in MULTIMODAL


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
        if not isinstance(tensor, np.ndarray):  # torch widens it first, since numpy has no bfloat16
            wide = tensor.double() if str(tensor.dtype) == "torch.float64" else tensor.float()
            tensor = wide.numpy(force=True)  # detached, on the CPU, signs resolved
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


def _oddity(tensor: Any) -> str | None:
    """Why a tensor is not a plain array, if it is not; shapes are checked against the stored bytes before reading."""
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


def read_pickle(folder: Path) -> StateDict:
    """Read the tensors of pytorch_model.bin with torch's weights-only loader, which runs no code.

    torch stores the pickle and the tensors' bytes in an uncompressed zip archive with checksums, but does not check
    them. Here a tensor's checksum is checked when it is read, all others before anything is unpickled.
    """
    path = folder / PICKLE_FILE
    if find_spec("torch") is None:
        raise MissingExtraError(
            f"{path} is a pickle, and reading one requires torch: convert it with "
            f"`pip install torch transformers` and `AutoModel.from_pretrained(...).save_pretrained(...)`, "
            "or `pip install 'detoklens[model]'` (in a clone: '.[model]')"
        )
    import torch

    sums = _check_archive(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about kinds of tensors that are refused when they are read
            tensors = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except MemoryError:
        raise
    except Exception as error:  # torch raises many kinds, among them RuntimeError and UnpicklingError
        raise CheckpointError(
            f"{path}: torch's weights-only loader refuses it ({type(error).__name__}); "
            "it is damaged, or holds more than tensors: convert it to safetensors"
        ) from error
    if not isinstance(tensors, dict) or not all(isinstance(name, str) for name in tensors):
        raise CheckpointError(
            f"{path}: holds {shown(type(tensors).__name__)}, not a dict of tensors; save the model's state_dict()"
        )
    return PickledTensors(tensors, str(path), sums)


class PickledTensors(StateDict):
    """Tensors whose bytes are compared with the archive's checksums as they are read."""

    def __init__(self, tensors: Mapping[str, Any], where: str, sums: Sums) -> None:
        super().__init__(tensors, where)
        self._sums = sums

    def read(self, name: str, dtype: np.dtype[Any]) -> np.ndarray:
        import torch

        storage = self.plain(name).untyped_storage()
        stored = torch.empty(0, dtype=torch.uint8).set_(storage).numpy()  # a view of all its bytes
        if self._sums and (len(stored), zlib.crc32(stored.data)) not in self._sums:
            raise CheckpointError(
                f"{self.where}: tensor {name!r} fails its checksum; the file is damaged, download it again"
            )
        return super().read(name, dtype)


def _check_archive(path: Path) -> Sums:
    """Return the tensors' checksums; refuse an archive unlike torch's before unpacking, e.g. a zip bomb."""
    try:
        with ZipFile(path) as archive:
            members = archive.infolist()
            tensors = {member.filename: member for member in members if "/data/" in member.filename}
            description = [member for member in members if member.filename not in tensors]
            if any(member.compress_type != ZIP_STORED for member in members):
                raise BadZipFile("compressed, unlike torch's archives")
            if len(tensors) + len(description) < len(members):
                raise BadZipFile("two members of one name")
            if sum(member.file_size for member in description) > LARGEST_DESCRIPTION:
                raise BadZipFile("too much data besides the tensors")
            for member in description:
                if member.CRC != NO_CHECKSUM:
                    archive.read(member)  # compares the sum
            sums = {(member.file_size, member.CRC) for member in tensors.values()}
            return sums if any(checksum != NO_CHECKSUM for _, checksum in sums) else set()
    except (BadZipFile, NotImplementedError, RuntimeError, ValueError, EOFError) as error:
        raise CheckpointError(
            f"{path}: not a complete torch archive ({first_line(error)}); it is damaged, or in the format before "
            "torch 1.6: convert it to safetensors"
        ) from error
