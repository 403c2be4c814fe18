"""How does a model's name on the hub become a local folder that holds what is needed?

1. config.json tells the commit (huggingface_hub's cache, or one request).
2. Are the whole weights in the hub's cache? Then that snapshot is the answer, and no weights are downloaded.
3. Has an earlier call left the needed tensors in our part of the cache? Then that folder is.
4. Else read the headers of the safetensors files by range requests, ask which tensors are needed, and fetch
   their bytes into a small safetensors file. For GPT-2 XL these are 0.37 GB of 6.4 GB.

The folder of 3 and 4 lies in huggingface_hub's assets cache, `assets/detoklens/<model>/<commit>/`, so HF_HOME
and HF_ASSETS_CACHE rule it too; not in the snapshot folder, where others would take the small file for the whole.
"""

import json
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from detoklens.errors import CheckpointError
from detoklens.hub.repository import RemoteFile
from detoklens.weights.hub.access import (
    CONFIG_FILE,
    HubModel,
    is_offline,
    list_files,
    plain_model_errors,
    resolve,
    small_file,
)
from detoklens.weights.hub.assembly import assemble, write_atomically
from detoklens.weights.hub.cached import (
    SOURCE_FILE,
    TOKENIZER_FILES,
    Needed,
    has_needed,
    has_tokenizer,
    has_whole_weights,
    held_tensors,
    read_object,
)
from detoklens.weights.hub.remote_weights import RemoteWeights
from detoklens.weights.hub.selection import select
from detoklens.weights.safetensors_files import INDEX_FILE, SINGLE_FILE
from detoklens.weights.torch_pickle import PICKLE_FILE


def fetch_checkpoint(repo_id: str, needed: Needed, revision: str | None = None, show_progress: bool = True) -> Path:
    """Which local folder holds this model's config, tokenizer and needed tensors?

    `needed(config, tensor_names)` says which tensors those are. An interrupted call is continued by the next.
    With HF_HUB_OFFLINE=1 only the caches are asked. The progress bar appears on stderr if that is a terminal.
    """
    with plain_model_errors(repo_id, revision):
        model = resolve(repo_id, revision)
        if has_whole_weights(model.snapshot, repo_id):
            return _with_tokenizer(model)
        folder = _folder(model)
        if has_needed(folder, needed):
            return folder
        if is_offline():
            return _cached_pickle(model)
        with _alone_in(folder):
            return folder if has_needed(folder, needed) else _fetch(model, folder, needed, show_progress)


def fetch_tokenizer(repo_id: str, revision: str | None = None) -> Path:
    """Which local folder holds this model's tokenizer? Its weights are not asked for, whatever their type."""
    with plain_model_errors(repo_id, revision):
        model = resolve(repo_id, revision)
        if has_tokenizer(_folder(model)):
            return _folder(model)
        return _with_tokenizer(model)


def _fetch(model: HubModel, folder: Path, needed: Needed, show_progress: bool) -> Path:
    files = list_files(model)
    if SINGLE_FILE not in files and INDEX_FILE not in files:
        return _pickle_or_refusal(model, files)
    weights = RemoteWeights(model, files)
    names = _needed_names(model, folder, needed, weights.file_of.keys())
    if weights.link_cached_blobs():
        return _with_tokenizer(model)
    found = weights.entries(names)
    selection = select(found)
    _copy_small_files(model, folder, files)
    _write_source(model, folder, found, weights.file_of)
    assemble(selection, folder / SINGLE_FILE, str(model), show_progress)
    return folder


def _needed_names(model: HubModel, folder: Path, needed: Needed, available: Collection[str]) -> set[str]:
    """What is needed now and what an earlier call needed, so that two users of a folder don't take turns."""
    config = read_object(model.snapshot / CONFIG_FILE, str(model))
    names = set(needed(config, available))
    if missing := sorted(names.difference(available)):
        raise CheckpointError(f"{model}: the checkpoint has no tensor {missing[0]!r}; give another model")
    return names | held_tensors(folder).intersection(available)


def _copy_small_files(model: HubModel, folder: Path, files: Collection[str]) -> None:
    """Config and tokenizer, copied rather than linked: the folder is whole by itself."""
    for name in (CONFIG_FILE, *TOKENIZER_FILES):
        if name in files:
            write_atomically(folder / name, small_file(model, name).read_bytes())


def _write_source(model: HubModel, folder: Path, files: Iterable[RemoteFile], tensors: Iterable[str]) -> None:
    source = {
        "model": str(model),
        "commit": model.commit,
        "files": {remote.name: {"etag": remote.etag, "bytes": remote.size} for remote in files},
        "tensors": sorted(tensors),
    }
    write_atomically(folder / SOURCE_FILE, json.dumps(source, indent=1).encode())


def _with_tokenizer(model: HubModel) -> Path:
    """The snapshot folder; its tokenizer is fetched if others have cached the weights alone."""
    if not is_offline() and not has_tokenizer(model.snapshot):
        files = list_files(model)
        for name in TOKENIZER_FILES:
            if name in files:
                small_file(model, name)
    return model.snapshot


def _pickle_or_refusal(model: HubModel, files: Collection[str]) -> Path:
    if (model.snapshot / PICKLE_FILE).is_file():
        return _with_tokenizer(model)
    if PICKLE_FILE not in files:
        raise CheckpointError(f"{model} has neither {SINGLE_FILE} nor {INDEX_FILE} on the hub; give another model")
    raise CheckpointError(
        f"{model} has only {PICKLE_FILE}, a pickle that can't be read in parts: fetch the whole of it with "
        f"`hf download {model}` and ask again with torch installed, or convert it with `python -c "
        f"\"from transformers import AutoModel; AutoModel.from_pretrained('{model}').save_pretrained('FOLDER')\"` "
        "and give FOLDER"
    )


def _cached_pickle(model: HubModel) -> Path:
    if (model.snapshot / PICKLE_FILE).is_file():
        return model.snapshot
    raise CheckpointError(
        f"{model}: the needed weights are not in the cache and HF_HUB_OFFLINE forbids to fetch them: unset "
        "HF_HUB_OFFLINE, or give a local folder"
    )


def _folder(model: HubModel) -> Path:
    from huggingface_hub import cached_assets_path

    return cached_assets_path(library_name="detoklens", namespace=str(model), subfolder=model.commit)


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Two processes that fetch the same model take turns: the second finds it done."""
    from huggingface_hub.utils import WeakFileLock

    with WeakFileLock(folder / ".lock"):
        yield
