"""What do the cached folders hold? Files that a stranger wrote, read with suspicion."""

import json
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from detoklens.errors import CheckpointError
from detoklens.weights.hub.access import CONFIG_FILE
from detoklens.weights.safetensors_files import INDEX_FILE, SINGLE_FILE, read_header, shard_names

TOKENIZER_FILES = ("tokenizer.json", "vocab.json", "merges.txt", "tokenizer_config.json")
SOURCE_FILE = "source.json"  # ours: where the small file's bytes come from, and the names of all tensors there

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


def read_weight_map(path: Path, where: str) -> dict[str, str]:
    """Which file holds which tensor of a sharded checkpoint? Only files beside the index are accepted."""
    index = read_object(path, where)
    if not shard_names(index, f"{where}: {path.name}"):
        raise CheckpointError(f"{where}: {path.name} names no tensors; give another model")
    return dict(index["weight_map"])


def has_whole_weights(folder: Path, where: str) -> bool:
    """Are all safetensors files of the checkpoint in the folder?"""
    if (folder / SINGLE_FILE).is_file():
        return True
    if not (folder / INDEX_FILE).is_file():
        return False
    shards = set(read_weight_map(folder / INDEX_FILE, where).values())
    return all((folder / shard).is_file() for shard in shards)


def has_tokenizer(folder: Path) -> bool:
    """Is there a tokenizer that can be read?"""
    older = (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file()
    return older or (folder / "tokenizer.json").is_file()


def held_tensors(folder: Path) -> set[str]:
    """Which tensors does the small file hold? None if it is missing or damaged: it is fetched anew then."""
    path = folder / SINGLE_FILE
    try:
        return set(read_header(path)) if path.is_file() else set()
    except CheckpointError:
        return set()


def has_needed(folder: Path, needed: Needed) -> bool:
    """Does the folder, left by an earlier fetch, hold all that is needed now?"""
    if not (folder / SOURCE_FILE).is_file() or not (held := held_tensors(folder)):
        return False
    config = read_object(folder / CONFIG_FILE, str(folder))
    tensors = read_object(folder / SOURCE_FILE, str(folder))["tensors"]
    return set(needed(config, tensors)) <= held
