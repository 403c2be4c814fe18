"""From a model's name to its first layer: a local folder, a hub id, or a model already in memory."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from detoklens import demo
from detoklens.errors import CheckpointError
from detoklens.tokens import Vocabulary
from detoklens.weights.families import family_of
from detoklens.weights.first_layer import FirstLayer
from detoklens.weights.safetensors_files import SafetensorsFolder, has_safetensors
from detoklens.weights.sources import StateDict, TensorSource
from detoklens.weights.torch_pickle import PICKLE_FILE, read_pickle

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


@dataclass(frozen=True)
class Checkpoint:
    """A first layer with its vocabulary; `folder` is where the real model can be read from, if it is on disk."""

    name: str
    config: dict[str, Any]
    first_layer: FirstLayer
    vocabulary: Vocabulary | None
    folder: Path | None
    notes: tuple[str, ...] = ()


def read_checkpoint(model: Any, dtype: np.dtype[Any], revision: str | None = None) -> Checkpoint:
    """Read the first layer of a folder, of a hub id, or of an object with `.config` and `.state_dict()`."""
    if hasattr(model, "config") and hasattr(model, "state_dict"):
        return _read_from_memory(model, dtype)
    with plain_file_errors():
        folder = find_folder(model, revision)
        config = read_config(folder)
        family_of(config)  # an unsupported type is said before the weights are looked for
        return _assemble(str(model), config, _open_weights(folder), Vocabulary.find(folder), folder, dtype)


@contextmanager
def plain_file_errors() -> Iterator[None]:
    """Turn a file that can't be opened (no permission, an impossible name) into one CheckpointError."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(
            f"{error.filename}: {error.strerror or error}; check the name of the model and who may read its files"
        ) from error


def find_folder(model: str | Path, revision: str | None = None) -> Path:
    """The local folder of a model: `demo`, a folder, or a hub id, whose first layer is fetched into the cache."""

    def fetch(hub_id: str) -> Path:
        from detoklens.weights.hub import fetch_checkpoint

        return fetch_checkpoint(hub_id, lambda config, names: family_of(config).tensor_names(names), revision)

    return _local_folder(model) or fetch(str(model))


def find_tokenizer_folder(model: str | Path, revision: str | None = None) -> Path:
    """The same for a model's tokenizer alone: no weights are fetched, and a model of any type will do."""

    def fetch(hub_id: str) -> Path:
        from detoklens.weights.hub import fetch_tokenizer

        return fetch_tokenizer(hub_id, revision)

    return _local_folder(model) or fetch(str(model))


def _local_folder(model: str | Path) -> Path | None:
    """The folder of `demo` or of a local model; None for what can only be a hub id."""
    packaged = demo.folder_of(str(model))
    if packaged is not None:
        return packaged
    folder = Path(model)
    if folder.is_dir():
        return folder
    if folder.exists():
        raise CheckpointError(f"{folder} is a file; name the folder that holds config.json and model.safetensors")
    if not HUB_ID.fullmatch(str(model)):
        raise CheckpointError(f"{model}: no such folder; name a folder with config.json, or a hub id such as gpt2")
    return None


def read_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    if not path.is_file():
        raise CheckpointError(f"{folder}: no config.json; name a folder in Hugging Face layout")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: not valid JSON ({error}); download it again") from error
    if not isinstance(config, dict):
        raise CheckpointError(f"{path}: not a JSON object; download it again")
    return config


def _open_weights(folder: Path) -> TensorSource:
    if has_safetensors(folder):
        return SafetensorsFolder(folder)
    if (folder / PICKLE_FILE).is_file():
        return read_pickle(folder)
    raise CheckpointError(f"{folder}: no model.safetensors (nor shards with an index); put the weights there")


def _read_from_memory(model: Any, dtype: np.dtype[Any]) -> Checkpoint:
    config = model.config if isinstance(model.config, dict) else model.config.to_dict()
    name = str(config.get("_name_or_path") or type(model).__name__)
    vocabulary = Vocabulary.find(Path(name)) if Path(name).is_dir() else None
    return _assemble(name, config, StateDict(model.state_dict(), name), vocabulary, None, dtype)


def _assemble(
    name: str,
    config: dict[str, Any],
    source: TensorSource,
    vocabulary: Vocabulary | None,
    folder: Path | None,
    dtype: np.dtype[Any],
) -> Checkpoint:
    layer = family_of(config).read(config, source, dtype)
    layer, notes = _trim(layer, vocabulary)
    return Checkpoint(name, config, layer, vocabulary, folder, notes)


def _trim(layer: FirstLayer, vocabulary: Vocabulary | None) -> tuple[FirstLayer, tuple[str, ...]]:
    """Drop embedding rows beyond the tokenizer's vocabulary: padding, or a model's control tokens."""
    rows = len(layer.token_embeddings)
    if vocabulary is None:
        return layer, (f"no tokenizer found: tokens are known by id only (0 to {rows - 1})",)
    if rows <= vocabulary.size:
        return layer, ()
    note = f"{rows - vocabulary.size} embedding rows beyond the tokenizer's {vocabulary.size} tokens are left out"
    return replace(layer, token_embeddings=layer.token_embeddings[: vocabulary.size]), (note,)
