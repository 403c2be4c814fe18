"""What do the cached folders hold? Files that a stranger wrote, read with suspicion."""

import json
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from detoklens.errors import CheckpointError
from detoklens.weights.safetensors_header import LENGTH_BYTES, header_length, parse_header

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")
TOKENIZER_FILES = ("tokenizer.json", "vocab.json", "merges.txt", "tokenizer_config.json")
SOURCE = "source.json"  # ours: where the small file's bytes come from, and the names of all tensors there

PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*\.safetensors")

Needed = Callable[[Mapping[str, Any], Collection[str]], Collection[str]]


def read_object(path: Path, where: str) -> dict[str, Any]:
    """The JSON object in a file."""
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{where}: {path.name} is not valid JSON; download it again") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{where}: {path.name} is not a JSON object; download it again")
    return content


def read_index(path: Path, where: str) -> dict[str, str]:
    """Which file holds which tensor of a sharded checkpoint? Only plain names of files beside the index are accepted."""
    shards = read_object(path, where).get("weight_map")
    if not isinstance(shards, dict) or not shards:
        raise CheckpointError(
            f"{where}: {path.name} has no weight_map of tensors to files; download it again"
        )
    for tensor, file in shards.items():
        if not isinstance(file, str) or not PLAIN_NAME.fullmatch(file):
            raise CheckpointError(
                f"{where}: {path.name} puts tensor {tensor!r} into {file!r}, which is not the plain name of a "
                "safetensors file beside it; such a checkpoint is not read"
            )
    return shards


def has_whole_weights(folder: Path, where: str) -> bool:
    """Are all safetensors files of the checkpoint in the folder?"""
    if (folder / WEIGHTS).is_file():
        return True
    if not (folder / INDEX).is_file():
        return False
    return all((folder / file).is_file() for file in set(read_index(folder / INDEX, where).values()))


def has_pickle(folder: Path) -> bool:
    """Is there a checkpoint that only torch can read?"""
    return any((folder / name).is_file() for name in PICKLES)


def has_tokenizer(folder: Path) -> bool:
    """Can the folder's tokenizer be read?"""
    older = (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file()
    return older or (folder / "tokenizer.json").is_file()


def held_tensors(folder: Path) -> set[str]:
    """Which tensors does the folder's small file hold? None if it is missing or damaged: then it is fetched anew."""
    path = folder / WEIGHTS
    if not path.is_file():
        return set()
    size = path.stat().st_size
    try:
        with path.open("rb") as file:
            first = file.read(LENGTH_BYTES)
            first += file.read(header_length(first, size, str(path)))
        return set(parse_header(first, size, str(path)))
    except CheckpointError:
        return set()


def has_needed(folder: Path, needed: Needed) -> bool:
    """Does the folder, left by an earlier fetch, hold all that is needed now?"""
    if not (folder / SOURCE).is_file() or not (held := held_tensors(folder)):
        return False
    config = read_object(folder / CONFIG, str(folder))
    tensors = read_object(folder / SOURCE, str(folder))["tensors"]
    return set(needed(config, tensors)) <= held
