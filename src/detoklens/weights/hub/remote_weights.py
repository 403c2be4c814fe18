"""A model's safetensors files on the hub: which tensor is in which file, and where in it?"""

from collections.abc import Collection
from functools import cached_property

from detoklens.errors import CheckpointError
from detoklens.hub.repository import RemoteFile
from detoklens.weights.hub.access import HubModel, has_blob, link_blob, locate, small_file
from detoklens.weights.hub.cached import read_weight_map
from detoklens.weights.hub.selection import read_remote_header
from detoklens.weights.safetensors_files import INDEX_FILE, SINGLE_FILE
from detoklens.weights.safetensors_header import TensorEntry


class RemoteWeights:
    """One file, or shards with an index. Files are located, and headers read, when they are first asked for."""

    def __init__(self, model: HubModel, files: Collection[str]) -> None:
        self._model = model
        self._files = files
        self._located: dict[str, RemoteFile] = {}
        self._headers: dict[str, dict[str, TensorEntry]] = {}

    @cached_property
    def file_of(self) -> dict[str, str]:
        """The file that each tensor is in."""
        if SINGLE_FILE in self._files:
            return dict.fromkeys(self._header(SINGLE_FILE), SINGLE_FILE)
        index = small_file(self._model, INDEX_FILE)
        return read_weight_map(index, str(self._model))

    def entries(self, names: Collection[str]) -> dict[RemoteFile, list[TensorEntry]]:
        """The places of these tensors. Only the files that hold any of them are opened."""
        found: dict[RemoteFile, list[TensorEntry]] = {}
        for name in sorted(names, key=lambda name: (self.file_of[name], name)):
            file = self.file_of[name]
            if name not in self._header(file):
                raise CheckpointError(
                    f"{self._model}: {INDEX_FILE} puts tensor {name!r} into {file}, which does not hold it; "
                    "the checkpoint is corrupt, give another model"
                )
            found.setdefault(self._locate(file), []).append(self._header(file)[name])
        return found

    def link_cached_blobs(self) -> bool:
        """Are the same weights cached under another commit? Then they are only linked."""
        remotes = [self._locate(file) for file in sorted(set(self.file_of.values()))]
        if not all(has_blob(self._model, remote) for remote in remotes):
            return False
        for remote in remotes:
            link_blob(self._model, remote)
        return True

    def _locate(self, file: str) -> RemoteFile:
        if file not in self._located:
            self._located[file] = locate(self._model, file)
        return self._located[file]

    def _header(self, file: str) -> dict[str, TensorEntry]:
        if file not in self._headers:
            self._headers[file] = read_remote_header(self._locate(file))
        return self._headers[file]
