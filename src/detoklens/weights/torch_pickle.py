"""Tensors of a `pytorch_model.bin`, a pickle that only torch's weights-only loader opens.

torch stores the pickle and the tensors' bytes in an uncompressed zip archive with checksums, but does not check them.
Here a tensor's checksum is checked when it is read, all others before anything is unpickled.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zipfile import ZIP_STORED, BadZipFile, ZipFile

import numpy as np

from detoklens.errors import CheckpointError, MissingExtraError, first_line, shown
from detoklens.weights.sources import StateDict

PICKLE_FILE = "pytorch_model.bin"
LARGEST_DESCRIPTION = 16 << 20  # bytes outside tensors; GPT-2 XL's pickle has 100 kB
Sums = set[tuple[int, int]]  # size and CRC-32 of each tensor's bytes
NO_CHECKSUM = 0  # written by torch if checksums are turned off


def read_pickle(folder: Path) -> StateDict:
    """Read the tensors of pytorch_model.bin with torch's weights-only loader, which runs no code."""
    path = folder / PICKLE_FILE
    if find_spec("torch") is None:
        raise MissingExtraError(
            f"{path} is a pickle, and reading one requires torch: convert it with "
            f"`pip install torch transformers` and `AutoModel.from_pretrained(...).save_pretrained(...)`, "
            "or `pip install 'detoklens[model]'` (in a clone: '.[model]')"
        )
    sums = _check_archive(path)
    tensors = _load(path)
    if not isinstance(tensors, dict) or not all(isinstance(name, str) for name in tensors):
        raise CheckpointError(
            f"{path}: holds {shown(type(tensors).__name__)}, not tensors by their names; save the model's state_dict()"
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
            f"{path}: not a whole archive of torch ({first_line(error)}); it is damaged, or in the format before "
            "torch 1.6: convert it to safetensors"
        ) from error


def _load(path: Path) -> Any:
    import torch

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about kinds of tensors that are refused when they are read
            return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except MemoryError:
        raise
    except Exception as error:  # torch raises many kinds, among them RuntimeError and UnpicklingError
        raise CheckpointError(
            f"{path}: torch's weights-only loader refuses it ({type(error).__name__}); "
            "it is damaged, or holds more than tensors: convert it to safetensors"
        ) from error
