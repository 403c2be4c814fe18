"""What does the hub say about a model? Its commit, files and sizes; small files go into huggingface_hub's cache.

The endpoint, cache folders, token and offline switch are huggingface_hub's: HF_ENDPOINT, HF_HOME,
HF_HUB_CACHE, HF_ASSETS_CACHE, HF_TOKEN, HF_HUB_OFFLINE.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from detoklens.errors import CheckpointError
from detoklens.version import __version__
from detoklens.weights.hub.plain_errors import plain_errors, transport_error

Answer = TypeVar("Answer")

LARGEST_SMALL_FILE = 200_000_000  # the longest tokenizer.json in use has about 35 MB


@dataclass(frozen=True)
class HubModel:
    """One commit of a model; `snapshot` is its folder in the hub's cache, with config.json at least."""

    repo_id: str
    commit: str
    snapshot: Path

    def __str__(self) -> str:
        return self.repo_id


@dataclass(frozen=True)
class RemoteFile:
    """One file of one commit, which therefore never changes: `etag` names its content."""

    name: str
    url: str
    size: int
    etag: str


def is_offline() -> bool:
    """Has the user forbidden the network (HF_HUB_OFFLINE=1)?"""
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


def resolve(repo_id: str, revision: str | None) -> HubModel:
    """Which commit is meant? The hub's answer, or the cache's where the hub can't be asked."""
    with plain_errors(repo_id, revision):
        cached = _cached_config(repo_id, revision)
        if is_offline() or (cached and cached.parent.name == revision):
            config = cached
        else:
            config = _current_config(repo_id, revision, cached)
    if config is None:
        raise CheckpointError(
            f"{repo_id}{f' at {revision}' if revision else ''} is not in the hub's cache and HF_HUB_OFFLINE "
            "forbids to fetch it: unset HF_HUB_OFFLINE, or give a local folder"
        )
    return HubModel(repo_id, config.parent.name, config.parent)


def list_files(model: HubModel) -> dict[str, int]:
    """Which files does the commit have, and how many bytes has each?"""
    from huggingface_hub import HfApi, constants

    with plain_errors(model.repo_id, model.commit):
        api = HfApi(endpoint=constants.ENDPOINT, library_name="detoklens", library_version=__version__)
        info = _asked_twice(lambda: api.model_info(model.repo_id, revision=model.commit, files_metadata=True))
    return {file.rfilename: file.size or 0 for file in info.siblings or []}


def small_file(model: HubModel, name: str, size: int) -> Path:
    """Where is this small file on disk? It is downloaded into the hub's cache if it is not there yet."""
    if size > LARGEST_SMALL_FILE:
        raise CheckpointError(f"{model}: {name} has {size:,} bytes, far more than such a file needs; not downloaded")
    with plain_errors(model.repo_id, model.commit):
        return _download(model.repo_id, name, model.commit)


def locate(model: HubModel, name: str) -> RemoteFile:
    """Where are this file's bytes, how many are there, and what is their fingerprint?"""
    with plain_errors(model.repo_id, model.commit):
        commit, etag, size, url = _metadata(model.repo_id, name, model.commit)
    if commit != model.commit or not etag or not size:
        raise CheckpointError(
            f"{model}: the hub's answer lacks commit, ETag or size of {name}; check HF_ENDPOINT, or give a local folder"
        )
    return RemoteFile(name, url, size, etag)


def request_headers() -> dict[str, str]:
    """The headers of every request: who asks, the user's token if there is one, and no compression."""
    from huggingface_hub.utils import build_hf_headers

    headers = build_hf_headers(library_name="detoklens", library_version=__version__)
    return {**headers, "Accept-Encoding": "identity"}


def _cached_config(repo_id: str, revision: str | None) -> Path | None:
    from huggingface_hub import try_to_load_from_cache

    cached = try_to_load_from_cache(repo_id, "config.json", revision=revision)
    return Path(cached) if isinstance(cached, str) else None


def _current_config(repo_id: str, revision: str | None, cached: Path | None) -> Path:
    """The hub's current config.json. A hub that can't be reached is no obstacle to a model that is cached."""
    try:
        with plain_errors(repo_id, revision):
            commit, *_ = _metadata(repo_id, "config.json", revision)
    except CheckpointError:
        if cached is None:
            raise
        return cached
    return cached if cached and cached.parent.name == commit else _download(repo_id, "config.json", revision)


def _metadata(repo_id: str, name: str, revision: str | None) -> tuple[str | None, str | None, int | None, str]:
    """Commit, etag, size and address of a file. (hf_hub_download would retry for 20 s if no one is there.)"""
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url

    url = hf_hub_url(repo_id, name, revision=revision, endpoint=constants.ENDPOINT)
    found = _asked_twice(lambda: get_hf_file_metadata(url, headers=request_headers(), endpoint=constants.ENDPOINT))
    return found.commit_hash, found.etag, found.size, url


def _asked_twice(ask: Callable[[], Answer]) -> Answer:
    """The answer, at the second attempt if need be: a connection kept open may just have been closed over there."""
    from huggingface_hub.errors import HfHubHTTPError

    try:
        return ask()
    except HfHubHTTPError:
        raise
    except transport_error():
        return ask()


def _download(repo_id: str, name: str, revision: str | None) -> Path:
    from huggingface_hub import constants, hf_hub_download

    download = partial(
        hf_hub_download,
        repo_id,
        name,
        revision=revision,
        endpoint=constants.ENDPOINT,
        library_name="detoklens",
        library_version=__version__,
    )
    with _without_bars():
        return Path(_asked_twice(download))


@contextmanager
def _without_bars() -> Iterator[None]:
    """No bar of huggingface_hub's for files of a second or less, unless the user's settings insist on it."""
    from huggingface_hub import constants, utils

    if utils.are_progress_bars_disabled() or constants.HF_HUB_DISABLE_PROGRESS_BARS is not None:
        yield
        return
    utils.disable_progress_bars()
    try:
        yield
    finally:
        utils.enable_progress_bars()
