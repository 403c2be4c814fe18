"""Read the first layer of a local folder, a GGUF file, a hub id or a model in memory."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from detoklens import demo
from detoklens.errors import CheckpointError, RangeError, UnsupportedModelError, shown
from detoklens.tokens import Vocabulary
from detoklens.tokens.tokenizer_files import read_tokenizer
from detoklens.weights import reader
from detoklens.weights.config import language_config
from detoklens.weights.families import spec_of
from detoklens.weights.first_layer import FirstLayer, MlpSublayer
from detoklens.weights.gguf_file import SUFFIX, GGUFFile
from detoklens.weights.gguf_tokenizer import gguf_vocabulary
from detoklens.weights.sources import (
    PICKLE_FILE,
    SafetensorsFolder,
    StateDict,
    TensorSource,
    has_safetensors,
    read_json_file,
    read_pickle,
    tensors_of,
    unwrapped,
)
from detoklens.weights.spec import Spec

ADAPTER_FILE = "adapter_config.json"
LARGEST_CONFIG = 10_000_000  # bytes; those in use have some kB
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


def no_mlp() -> MlpSublayer:
    """The `read_mlp` of a layer made of arrays."""
    raise UnsupportedModelError("this layer has no MLP; load a whole checkpoint for the first block's output")


@dataclass(frozen=True)
class Checkpoint:
    """A first layer with its vocabulary; the real model is in `folder` (or a GGUF file), or it is the object `model`.

    `read_mlp` reads the first block's second norm and MLP; `quantised` lists the types that weights were dequantised
    from; `blocks_folder` returns the folder of the first n blocks. Both download what is missing.
    """

    name: str
    config: dict[str, Any]
    first_layer: FirstLayer
    vocabulary: Vocabulary | None
    folder: Path | None
    notes: tuple[str, ...] = ()
    read_mlp: Callable[[], MlpSublayer] = no_mlp
    model: Any = None
    quantised: tuple[str, ...] = ()
    blocks_folder: Callable[[int], Path | None] = lambda _n_blocks: None


def read_checkpoint(
    model: Any, dtype: np.dtype[Any], revision: str | None = None, vocabulary: Vocabulary | None = None
) -> Checkpoint:
    """Read the first layer of a folder, of a hub id, or of an object with `.config` and `.state_dict()`.

    `vocabulary` replaces that of the files.
    """
    if is_in_memory(model):
        if revision is not None:
            raise CheckpointError(f"a model in memory has no revisions; leave revision={revision!r} out")
        return _read_from_memory(unwrapped(model), dtype, vocabulary)
    with plain_file_errors():
        place = locate(model, revision)
        if isinstance(place, Path) and place.is_file():
            return _read_gguf(place, dtype, vocabulary)
        folder = find_folder(place)
        config = read_config(folder)
        spec_of(config)  # an unsupported model is refused before its weights are opened
        checkpoint = _assemble(str(model), config, open_weights(folder), vocabulary or _find_vocabulary(folder), dtype)

        def read_mlp() -> MlpSublayer:
            def wanted(spec: Spec, names: Collection[str]) -> list[str]:
                return [*spec.tensor_names(names), *spec.mlp_names(names)]

            with plain_file_errors():
                return _read_mlp(config, open_weights(find_folder(place, wanted)), dtype)

        def blocks_folder(n_blocks: int) -> Path:
            with plain_file_errors():
                return find_folder(place, lambda spec, names: spec.block_names(names, n_blocks))

        return replace(checkpoint, folder=folder, read_mlp=read_mlp, blocks_folder=blocks_folder)


@dataclass(frozen=True)
class HubName:
    """A model on the hub."""

    repo_id: str
    revision: str | None


def locate(model: str | Path, revision: str | None = None, files: tuple[str, ...] = (SUFFIX,)) -> Path | HubName:
    """Where a model is: the folder of `demo` or of a local model, a GGUF file, or a name on the hub.

    A name on the hub may end in `@REVISION`; what is on this machine keeps its whole name and has no revisions. `files`
    are the endings of files that are accepted.
    """
    name, path = str(model), Path(model)
    bundled = demo.folder_of(name)
    if bundled and revision is not None:
        raise CheckpointError(f"{name} has no revision {revision!r}; its snapshots are {', '.join(demo.snapshots())}")
    if revision is not None and path.exists():
        raise CheckpointError(
            f"{path} is on this machine, so it has no revision {revision!r}; leave the revision out, or pass a hub id"
        )
    if bundled or path.is_dir():
        return bundled or path
    if path.is_file() and path.suffix in files:
        return path
    if path.suffix == SUFFIX:  # which can't be a hub id
        raise CheckpointError(f"{path}: no such file; pass the path of a GGUF file")
    if path.exists():
        raise CheckpointError(f"{path} is a file; pass the folder that contains config.json and model.safetensors")
    repo_id, at, named = name.rpartition("@")
    if not (at and HUB_ID.fullmatch(repo_id)):
        at, repo_id = "", name
    if not HUB_ID.fullmatch(repo_id):
        raise CheckpointError(f"{model}: no such folder; pass a folder with config.json, or a hub id such as gpt2")
    if at and revision not in (None, named):
        raise CheckpointError(f"{model} names revision {named}, but revision={revision} was passed; pass only one")
    return HubName(repo_id, named if at else revision)


def read_gguf_vocabulary(path: Path) -> Vocabulary:
    """The tokenizer of a GGUF file; an error if its kind is not supported."""
    source = GGUFFile(path)
    vocabulary, notes = gguf_vocabulary(source.settings, source.where)
    if vocabulary is None:
        raise CheckpointError(f"{path}: {notes[0]}; pass the folder of the model's own tokenizer")
    return vocabulary


@contextmanager
def plain_file_errors() -> Iterator[None]:
    """Turn a file that can't be opened (no permission, an impossible name) into one CheckpointError."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(
            f"{error.filename}: {error.strerror or error}; check the model's name and the file permissions"
        ) from error


def find_folder(
    place: Path | HubName, wanted: Callable[[Spec, Collection[str]], Collection[str]] = Spec.tensor_names
) -> Path:
    """The model's folder or GGUF file; for a name on the hub, a folder in the cache with the `wanted` tensors."""
    if isinstance(place, Path):
        return place
    from detoklens.weights.hub_checkpoint import fetch_checkpoint

    def needed(config: Mapping[str, Any], names: Collection[str]) -> Collection[str]:
        return wanted(spec_of(language_config(config)), names)

    return fetch_checkpoint(place.repo_id, needed, place.revision)


def _read_mlp(config: dict[str, Any], source: TensorSource, dtype: np.dtype[Any]) -> MlpSublayer:
    spec, names = spec_of(config), source.names()
    if spec.mlp and not spec.mlp_names(names):
        raise CheckpointError(
            f"{source.where}: the tensors of the first block's MLP are missing (such as {spec.mlp_tensors()[-2]!r}), "
            "so the block's output can't be computed; pass the whole checkpoint"
        )
    return reader.read_mlp(spec, config, source, dtype)


def find_tokenizer_folder(place: Path | HubName) -> Path:
    """The same for a model's tokenizer alone: no weights are fetched, and a model of any type will do."""
    if isinstance(place, Path):
        return place
    from detoklens.weights.hub_checkpoint import fetch_tokenizer

    return fetch_tokenizer(place.repo_id, place.revision)


def _find_vocabulary(folder: Path) -> Vocabulary | None:
    """The vocabulary of a folder's tokenizer, if it has one."""
    tokenizer = read_tokenizer(folder)
    return None if tokenizer is None else Vocabulary(tokenizer)


def read_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    if not path.is_file():
        _refuse_adapter(folder)
        inside = sorted(folder.glob(f"*{SUFFIX}"))
        hint = f"pass the file {inside[0].name} itself" if inside else "pass a folder in Hugging Face layout"
        raise CheckpointError(f"{folder}: no config.json; {hint}")
    if path.stat().st_size > LARGEST_CONFIG:
        raise CheckpointError(f"{path}: {path.stat().st_size:,} bytes is too large for a config; download it again")
    return language_config(read_json_file(path))


def open_weights(folder: Path) -> TensorSource:
    if has_safetensors(folder):
        return SafetensorsFolder(folder)
    if (folder / PICKLE_FILE).is_file():
        return read_pickle(folder)
    _refuse_adapter(folder)
    raise CheckpointError(f"{folder}: no model.safetensors (nor shards with an index); put the weights there")


def _read_gguf(path: Path, dtype: np.dtype[Any], given: Vocabulary | None) -> Checkpoint:
    """Read config, weights and tokenizer from one file."""
    source = GGUFFile(path)
    config = source.config
    vocabulary, notes = gguf_vocabulary(source.settings, source.where)
    if given is not None:
        vocabulary, notes = given, ()
    checkpoint = _assemble(str(path), config, source, vocabulary, dtype)
    return replace(
        checkpoint,
        folder=path,
        first_layer=source.with_frequency_factors(checkpoint.first_layer),
        notes=(*source.notes(), *notes, *checkpoint.notes),
        quantised=source.quantised(),
        read_mlp=lambda: _read_mlp(config, source, dtype),
        blocks_folder=lambda _n_blocks: source.whole_model(),
    )


def _refuse_adapter(folder: Path) -> None:
    if (folder / ADAPTER_FILE).is_file():
        raise UnsupportedModelError(
            f"{folder} is an adapter ({ADAPTER_FILE}), not a model: merge it into its base model and pass the merged "
            "checkpoint, or pass the base model"
        )


def config_of(model: Any) -> dict[str, Any]:
    return model.config if isinstance(model.config, dict) else dict(model.config.to_dict())


def is_in_memory(model: Any) -> bool:
    """Whether this is a model object; one that can't be read is refused."""
    if isinstance(model, str | os.PathLike):
        return False
    inside = unwrapped(model)
    if not hasattr(inside, "state_dict") or isinstance(inside, type):
        raise RangeError(
            f"{shown(model)} is not a model; pass a name or path (a string or pathlib.Path), or a transformers model"
        )
    if not hasattr(inside, "config"):
        raise UnsupportedModelError(
            f"a model of class {type(model).__name__} has no transformers config; pass the transformers model that it "
            "was made from, or a TransformerLens bridge"
        )
    return True


def _read_from_memory(model: Any, dtype: np.dtype[Any], given: Vocabulary | None) -> Checkpoint:
    config = config_of(model)
    name = str(config.get("_name_or_path") or type(model).__name__)
    vocabulary = given or (_find_vocabulary(Path(name)) if Path(name).is_dir() else None)
    source = StateDict(tensors_of(model), name)
    checkpoint = _assemble(name, config, source, vocabulary, dtype)
    return replace(checkpoint, model=model, read_mlp=lambda: _read_mlp(config, source, dtype))


def _assemble(
    name: str,
    config: dict[str, Any],
    source: TensorSource,
    vocabulary: Vocabulary | None,
    dtype: np.dtype[Any],
) -> Checkpoint:
    layer = reader.read_first_layer(spec_of(config), config, source, dtype)
    rows, notes = len(layer.token_embeddings), tuple[str, ...]()
    if vocabulary is None:
        notes = (f"no tokenizer found: tokens are known by id only (0 to {rows - 1})",)
    elif rows > (size := vocabulary.size):  # padding, or a model's control tokens
        notes = (f"{rows - size} embedding rows beyond the tokenizer's {size} tokens are left out",)
        layer = replace(layer, token_embeddings=layer.token_embeddings[:size])
    return Checkpoint(name, config, layer, vocabulary, None, notes)
