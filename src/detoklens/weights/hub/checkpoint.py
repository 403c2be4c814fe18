"""How does a model's name on the hub become a local folder that holds what is needed?

1. config.json tells the commit (huggingface_hub's cache, or one request).
2. Are the whole weights in the hub's cache? Then that snapshot is the answer, and no weights are downloaded.
3. Has an earlier call left the needed tensors in our part of the cache? Then that folder is.
4. Else read the headers of the safetensors files by range requests, ask which tensors are needed, and fetch their
   bytes into a small safetensors file. For GPT-2 XL these are 0.37 GB of 6.4 GB.

The folder of 3 and 4 lies in huggingface_hub's assets cache, `assets/detoklens/<model>/<commit>/`, so HF_HOME and
HF_ASSETS_CACHE rule it too; not in the snapshot folder, where others would take the small file for the whole one.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from detoklens.errors import CheckpointError
from detoklens.weights.hub.access import (
    HubModel,
    RemoteFile,
    is_offline,
    list_files,
    locate,
    resolve,
    small_file,
)
from detoklens.weights.hub.assembly import assemble, write_atomically
from detoklens.weights.hub.on_disk import (
    CONFIG,
    INDEX,
    PICKLES,
    SOURCE,
    TOKENIZER_FILES,
    WEIGHTS,
    Needed,
    has_needed,
    has_pickle,
    has_tokenizer,
    has_whole_weights,
    held_tensors,
    read_index,
    read_object,
)
from detoklens.weights.hub.plain_errors import plain_disk_errors, plain_errors
from detoklens.weights.hub.selection import read_remote_header, select
from detoklens.weights.safetensors_header import TensorEntry


def fetch_checkpoint(
    repo_id: str, needed: Needed, revision: str | None = None, show_progress: bool = True
) -> Path:
    """Which local folder holds this model's config, tokenizer and needed tensors?

    `needed(config, tensor_names)` says which tensors those are. An interrupted call is continued by the next one.
    With HF_HUB_OFFLINE=1 only the caches are asked. The progress bar appears on stderr if that is a terminal.
    """
    model = resolve(repo_id, revision)
    if has_whole_weights(model.snapshot, repo_id):
        return _with_tokenizer(model)
    folder = _folder(model)
    if has_needed(folder, needed):
        return folder
    if is_offline():
        return _cached_pickle(model)
    with plain_disk_errors(folder), plain_errors(repo_id, revision), _alone_in(folder):
        return folder if has_needed(folder, needed) else _fetch(model, folder, needed, show_progress)


def _fetch(model: HubModel, folder: Path, needed: Needed, show_progress: bool) -> Path:
    files = list_files(model)
    if WEIGHTS not in files and INDEX not in files:
        return _pickle_or_refusal(model, files)
    shards = {} if WEIGHTS in files else read_index(small_file(model, INDEX, files[INDEX]), model.repo_id)
    if _link_cached_blobs(model, set(shards.values()) or {WEIGHTS}):
        return _with_tokenizer(model)
    headers = {} if shards else {WEIGHTS: _remote_tensors(model, WEIGHTS)}
    shards = shards or dict.fromkeys(headers[WEIGHTS][1], WEIGHTS)
    names = _needed_names(model, folder, needed, shards)
    for shard in sorted({shards[name] for name in names} - set(headers)):
        headers[shard] = _remote_tensors(model, shard)
    found = {
        remote: _entries(model, tensors, shard, names, shards) for shard, (remote, tensors) in headers.items()
    }
    _write_small_files(model, folder, files, shards, found)
    assemble(select(found), folder / WEIGHTS, model.repo_id, show_progress)
    return folder


def _needed_names(model: HubModel, folder: Path, needed: Needed, available: Collection[str]) -> set[str]:
    """What is needed now and what an earlier call needed, so that two users of one folder don't take turns."""
    config = read_object(model.snapshot / CONFIG, model.repo_id)
    names = set(needed(config, available))
    if missing := sorted(names - set(available)):
        raise CheckpointError(
            f"{model}: the checkpoint has no tensor {missing[0]!r}; is it another kind of model?"
        )
    return names | (held_tensors(folder) & set(available))


def _remote_tensors(model: HubModel, file: str) -> tuple[RemoteFile, dict[str, TensorEntry]]:
    remote = locate(model, file)
    return remote, read_remote_header(remote)


def _entries(
    model: HubModel,
    tensors: Mapping[str, TensorEntry],
    shard: str,
    names: Collection[str],
    shards: Mapping[str, str],
) -> list[TensorEntry]:
    """The needed tensors of one file. The index may promise what the file doesn't hold."""
    here = sorted(name for name in names if shards[name] == shard)
    for name in here:
        if name not in tensors:
            raise CheckpointError(f"{model}: {INDEX} puts tensor {name!r} into {shard}, where it is not")
    return [tensors[name] for name in here]


def _write_small_files(
    model: HubModel,
    folder: Path,
    files: Mapping[str, int],
    shards: Mapping[str, str],
    found: Mapping[RemoteFile, Collection[TensorEntry]],
) -> None:
    """Config and tokenizer are copied, so that clearing the hub's cache leaves the folder whole. The weights come last."""
    for name in (CONFIG, *TOKENIZER_FILES):
        if name in files:
            write_atomically(folder / name, small_file(model, name, files[name]).read_bytes())
    source = {
        "model": model.repo_id,
        "commit": model.commit,
        "files": {remote.name: {"etag": remote.etag, "bytes": remote.size} for remote in found},
        "tensors": sorted(shards),
    }
    write_atomically(folder / SOURCE, json.dumps(source, indent=1).encode())


def _with_tokenizer(model: HubModel) -> Path:
    """The snapshot folder, its tokenizer files fetched if none is there: others may have cached the weights alone."""
    if not is_offline() and not has_tokenizer(model.snapshot):
        files = list_files(model)
        for name in TOKENIZER_FILES:
            if name in files:
                small_file(model, name, files[name])
    return model.snapshot


def _link_cached_blobs(model: HubModel, names: Collection[str]) -> bool:
    """Are the same weights cached under another commit? Then huggingface_hub links them, and downloads nothing."""
    blobs = model.snapshot.parent.parent / "blobs"
    if not blobs.is_dir() or not all((blobs / locate(model, name).etag).is_file() for name in names):
        return False
    for name in names:
        small_file(model, name, 0)
    return True


def _pickle_or_refusal(model: HubModel, files: Collection[str]) -> Path:
    if has_pickle(model.snapshot):
        return _with_tokenizer(model)
    if not any(name in files for name in PICKLES):
        raise CheckpointError(f"{model} has neither {WEIGHTS} nor {INDEX} on the hub; give another model")
    raise CheckpointError(
        f"{model} has only {PICKLES[0]}, a pickle that can't be read in parts: fetch all of it with `hf download {model}` "
        'and ask again with torch installed, or convert it with `python -c "from transformers import AutoModel; '
        f"AutoModel.from_pretrained('{model}').save_pretrained('FOLDER')\"` and give FOLDER"
    )


def _cached_pickle(model: HubModel) -> Path:
    if has_pickle(model.snapshot):
        return model.snapshot
    raise CheckpointError(
        f"{model}: the needed weights are not in the cache and HF_HUB_OFFLINE forbids to fetch them: unset "
        "HF_HUB_OFFLINE, or give a local folder"
    )


def _folder(model: HubModel) -> Path:
    from huggingface_hub import cached_assets_path

    return cached_assets_path(library_name="detoklens", namespace=model.repo_id, subfolder=model.commit)


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Two processes that fetch the same model don't append to the same file: the second waits and finds it done."""
    from huggingface_hub.utils import WeakFileLock

    with WeakFileLock(folder / ".lock"):
        yield
