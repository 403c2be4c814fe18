"""A model on the hub as a local folder that holds its config, its tokenizer and the needed tensors.

1. config.json gives the commit (from huggingface_hub's cache, or by one request).
2. If huggingface_hub's cache holds the whole weights, the result is that snapshot folder.
3. If an earlier call has left the needed tensors in our part of the cache, the result is that folder.
4. Otherwise read the headers of the safetensors files by range requests and fetch the needed tensors into a small
   safetensors file. For GPT-2 XL these are 0.37 GB of 6.4 GB.

The folder of 3 and 4 is `assets/detoklens/<model>/<commit>/` in huggingface_hub's assets cache, where no other program
takes the small file for the whole model.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from detoklens.errors import CheckpointError, HubError
from detoklens.hub.repository import MAIN, Repository, is_offline, is_plain_path, lock_folder
from detoklens.hub.session import Assembly, RemoteFile, download, one_line_errors, stream_ranges
from detoklens.weights.sources import (
    INDEX_FILE,
    LENGTH_BYTES,
    PICKLE_FILE,
    SINGLE_FILE,
    TensorEntry,
    has_safetensors,
    header_length,
    parse_header,
    read_header,
    read_index,
    read_json_file,
    shard_paths,
)
from detoklens.writing import write_whole

CONFIG_FILE = "config.json"
TOKENIZER_FILES = ("tokenizer.json", "vocab.json", "merges.txt", "tokenizer_config.json")
SOURCE_FILE = "source.json"  # ours: the remote files and the names of all their tensors
LARGEST_SMALL_FILE = 200_000_000  # bytes; the largest tokenizer.json in use has about 35 MB
LARGEST_JSON = LARGEST_HEADER = 32_000_000  # bytes; parsed, it takes up to 25 times as much memory
FIRST_REQUEST_BYTES = 65_536  # most headers fit; a longer one takes a second request

Needed = Callable[[Mapping[str, Any], Collection[str]], Collection[str]]


@dataclass(frozen=True)
class HubModel:
    """One commit of a model; `snapshot` is its folder in huggingface_hub's cache, with config.json at least."""

    repository: Repository
    commit: str
    snapshot: Path

    def __str__(self) -> str:
        return self.repository.repo_id

    @property
    def folder(self) -> Path:
        """Our folder for the small file."""
        return self.repository.assets_folder(self.commit)

    @property
    def files(self) -> frozenset[str]:
        return self.repository.list_files(self.commit)[1]

    def fetch(self, name: str) -> Path:
        """Return the path of a small file, downloaded if it is not cached."""
        return self.repository.fetch(self.commit, name, LARGEST_JSON if name == INDEX_FILE else LARGEST_SMALL_FILE)

    def with_tokenizer(self) -> Path:
        """Return the snapshot folder; fetch the tokenizer if only the weights are cached."""
        if not is_offline() and not _has_tokenizer(self.snapshot):
            for name in self.files.intersection(TOKENIZER_FILES):
                self.fetch(name)
        return self.snapshot


def fetch_checkpoint(repo_id: str, needed: Needed, revision: str | None = None) -> Path:
    """Return a local folder with the model's config, tokenizer and needed tensors.

    `needed(config, tensor_names)` names the tensors. The next call resumes an interrupted one. With HF_HUB_OFFLINE=1
    only the caches are used.
    """
    with one_line_errors(Repository("model", repo_id), revision):
        model = _resolve(repo_id, revision)
        if has_safetensors(model.snapshot) and all(path.is_file() for path in shard_paths(model.snapshot)):
            return model.with_tokenizer()
        if _has_needed(model.folder, needed):
            return model.folder
        if not is_offline():
            with lock_folder(model.folder):
                return model.folder if _has_needed(model.folder, needed) else _fetch(model, needed)
        if (model.snapshot / PICKLE_FILE).is_file():
            return model.snapshot
        raise CheckpointError(
            f"{model}: the needed weights are not in the cache and HF_HUB_OFFLINE is set; unset HF_HUB_OFFLINE, or use "
            "a local folder"
        )


def fetch_tokenizer(repo_id: str, revision: str | None = None) -> Path:
    """Return a local folder with the model's tokenizer, for any kind of model; no weights are fetched."""
    with one_line_errors(Repository("model", repo_id), revision):
        model = _resolve(repo_id, revision)
        return model.folder if _has_tokenizer(model.folder) else model.with_tokenizer()


def _resolve(repo_id: str, revision: str | None) -> HubModel:
    """Find the commit: ask the hub, or the cache if the hub can't be reached."""
    repository, branch = Repository("model", repo_id), revision or MAIN
    if not is_plain_path(branch):
        raise CheckpointError(f"{revision!r} is not a revision; pass a branch, a tag or a commit")
    config = repository.cached(branch, CONFIG_FILE)
    if not (is_offline() or (config and config.parent.name == revision)):
        try:
            with one_line_errors(repository, branch):
                commit, remote = repository.locate(branch, CONFIG_FILE)
        except HubError:
            if config is None:
                raise
        else:
            if config is None or config.parent.name != commit:
                config = repository.store(commit, remote, LARGEST_JSON)
            repository.remember_commit(branch, commit)
    if config is None:
        raise CheckpointError(
            f"{repo_id}{f' at {revision}' if revision else ''} is not in the hub's cache and HF_HUB_OFFLINE is set; "
            "unset HF_HUB_OFFLINE, or use a local folder"
        )
    return HubModel(repository, config.parent.name, config.parent)


def _fetch(model: HubModel, needed: Needed) -> Path:
    files, repository = model.files, model.repository
    if SINGLE_FILE in files:
        shards = {SINGLE_FILE}
    elif INDEX_FILE in files:
        shard_of = read_index(model.fetch(INDEX_FILE))
        shards = set(shard_of.values())
    else:
        return _pickle_or_refuse(model, files)
    remotes = {shard: repository.locate(model.commit, shard)[1] for shard in sorted(shards)}
    if all(repository.has_content(remote) for remote in remotes.values()):  # cached for another commit
        for remote in remotes.values():
            repository.store(model.commit, remote)
        return model.with_tokenizer()
    header = cache(lambda shard: read_remote_header(remotes[shard]))
    if SINGLE_FILE in files:
        shard_of = dict.fromkeys(header(SINGLE_FILE), SINGLE_FILE)
    names = set(needed(read_json_file(model.snapshot / CONFIG_FILE), shard_of.keys()))
    if missing := sorted(names.difference(shard_of)):
        raise CheckpointError(f"{model}: the checkpoint has no tensor {missing[0]!r}; choose another model")
    names |= _held_tensors(model.folder).intersection(shard_of)  # so that two users don't replace each other's file
    found = {}
    for shard in sorted({shard_of[name] for name in names}):
        wanted = sorted(name for name in names if shard_of[name] == shard)
        if missing := [name for name in wanted if name not in header(shard)]:
            raise CheckpointError(
                f"{model}: {INDEX_FILE} puts tensor {missing[0]!r} into {shard}, which does not hold it; the "
                "checkpoint is corrupt, choose another model"
            )
        found[remotes[shard]] = [header(shard)[name] for name in wanted]
    small_file = select(found)
    for name in (CONFIG_FILE, *TOKENIZER_FILES):  # copied, so that the folder is complete
        if name in files:
            write_whole(model.folder / name, model.fetch(name).read_bytes())
    source = {
        "model": str(model),
        "commit": model.commit,
        "files": {remote.name: {"etag": remote.etag, "bytes": remote.size} for remote in found},
        "tensors": sorted(shard_of),
    }
    write_whole(model.folder / SOURCE_FILE, json.dumps(source, indent=1).encode())
    download(small_file, model.folder / SINGLE_FILE, title=f"{model} (bytes)")
    return model.folder


def _pickle_or_refuse(model: HubModel, files: Collection[str]) -> Path:
    if (model.snapshot / PICKLE_FILE).is_file():
        return model.with_tokenizer()
    if PICKLE_FILE not in files:
        raise CheckpointError(f"{model} has neither {SINGLE_FILE} nor {INDEX_FILE} on the hub; choose another model")
    raise CheckpointError(
        f"{model} has only {PICKLE_FILE}, a pickle that can't be read in parts: download all of it with "
        f'`python -c "from huggingface_hub import snapshot_download as get; '
        f"get('{model}', revision='{model.commit}')\"` "
        "and run the command again with torch installed, or convert it with `python -c "
        f"\"from transformers import AutoModel; AutoModel.from_pretrained('{model}', revision='{model.commit}')"
        ".save_pretrained('FOLDER')\"` and use FOLDER"
    )


def _has_tokenizer(folder: Path) -> bool:
    older = (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file()
    return older or (folder / "tokenizer.json").is_file()


def _held_tensors(folder: Path) -> set[str]:
    """Return the tensors of the small file: none if it is missing or damaged, so that it is fetched again."""
    path = folder / SINGLE_FILE
    try:
        return set(read_header(path)) if path.is_file() else set()
    except CheckpointError:
        return set()


def _has_needed(folder: Path, needed: Needed) -> bool:
    """Whether the folder, left by an earlier call, holds all needed tensors."""
    if not (folder / SOURCE_FILE).is_file() or not (held := _held_tensors(folder)):
        return False
    config = read_json_file(folder / CONFIG_FILE)
    tensors = read_json_file(folder / SOURCE_FILE)["tensors"]
    return set(needed(config, tensors)) <= held


def read_remote_header(remote: RemoteFile) -> dict[str, TensorEntry]:
    """Return the tensors of a remote file and their byte ranges."""
    first = b"".join(stream_ranges(remote, [range(min(FIRST_REQUEST_BYTES, remote.size))]))
    end = LENGTH_BYTES + header_length(first[:LENGTH_BYTES], remote.size, remote.url)
    if end > LARGEST_HEADER:
        raise CheckpointError(f"{remote.url}: the header has {end:,} bytes, limit {LARGEST_HEADER:,}; not downloaded")
    rest = b"".join(stream_ranges(remote, [range(len(first), end)]))
    return parse_header(first + rest, remote.size, remote.url)


def select(found: Mapping[RemoteFile, Sequence[TensorEntry]]) -> Assembly:
    """Plan the small safetensors file that holds these tensors of these files.

    Tensors keep their order, so that adjacent ones are one request. The header is padded so that they stay aligned.
    """
    fields: dict[str, object] = {"__metadata__": {"format": "pt"}}
    parts = []
    position = 0
    for remote, entries in found.items():
        ranges: list[range] = []
        for entry in sorted(entries, key=lambda entry: (entry.start, entry.end)):
            end = position + entry.end - entry.start
            fields[entry.name] = {"dtype": entry.dtype, "shape": entry.shape, "data_offsets": [position, end]}
            position = end
            follows = bool(ranges) and ranges[-1].stop == entry.start
            ranges.append(range(ranges.pop().start if follows else entry.start, entry.end))
        parts.append((remote, tuple(ranges)))
    text = json.dumps(fields, separators=(",", ":")).encode()
    text += b" " * (-len(text) % LENGTH_BYTES)
    return Assembly(tuple(parts), header=len(text).to_bytes(LENGTH_BYTES, "little") + text)
