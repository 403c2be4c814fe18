"""Sources of tensors: safetensors files, a GGUF file, a model in memory or a torch pickle behind one interface.

A source reads one named tensor at a time into an array of the requested type; nothing else of a checkpoint is read. The
last two, whose tensors are torch's, are here.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Collection, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol
from zipfile import ZIP_STORED, BadZipFile, ZipFile

import numpy as np

from detoklens.errors import CheckpointError, MissingExtraError, UnsupportedModelError, first_line, shown
from detoklens.weights.config import MULTIMODAL

BLOCK = 1 << 22  # numbers checked at a time
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


class TensorSource(Protocol):
    """Something that holds named tensors."""

    @property
    def where(self) -> str:
        """The source's name in messages."""
        ...

    def names(self) -> Collection[str]: ...

    def shape(self, name: str) -> tuple[int, ...]: ...

    def read(self, name: str, dtype: np.dtype[Any]) -> np.ndarray: ...


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


def check_finite(values: np.ndarray, name: str, where: str) -> None:
    flat = values.reshape(-1)
    if not all(np.isfinite(flat[begin : begin + BLOCK]).all() for begin in range(0, flat.size, BLOCK)):
        raise CheckpointError(f"{where}: tensor {name!r} holds NaN or Inf; the checkpoint is damaged")


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
