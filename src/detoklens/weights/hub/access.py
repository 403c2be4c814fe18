"""What does the hub say about a model? Its commit and files; small files go into huggingface_hub's cache.

The endpoint, cache folders, token and offline switch are huggingface_hub's: HF_ENDPOINT, HF_HOME,
HF_HUB_CACHE, HF_ASSETS_CACHE, HF_TOKEN, HF_HUB_OFFLINE.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from detoklens.errors import CheckpointError, HubError
from detoklens.hub import files
from detoklens.hub.cache import cached, has_content, remember
from detoklens.hub.plain_errors import plain_errors
from detoklens.hub.repository import RemoteFile, Repository, is_plain_path

LARGEST_SMALL_FILE = 200_000_000  # the longest tokenizer.json in use has about 35 MB
LARGEST_JSON = 32_000_000  # of a config, an index or a header, whose objects take up to 25 times as much memory
CONFIG_FILE = "config.json"


@dataclass(frozen=True)
class HubModel:
    """One commit of a model; `snapshot` is its folder in the hub's cache, with config.json at least."""

    repository: Repository
    commit: str
    snapshot: Path

    def __str__(self) -> str:
        return self.repository.repo_id


def is_offline() -> bool:
    """Has the user forbidden the network (HF_HUB_OFFLINE=1)?"""
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


def resolve(repo_id: str, revision: str | None) -> HubModel:
    """Which commit is meant? The hub's answer, or the cache's where the hub can't be asked."""
    repository, branch = Repository("model", repo_id), revision or files.BRANCH
    if not is_plain_path(branch):
        raise CheckpointError(f"{revision!r} is no revision of a model: give a branch, a tag or a commit")
    with plain_errors(repository, revision):
        known = cached(repository, branch, CONFIG_FILE)
    if is_offline() or (known and known.parent.name == revision):
        config = known
    else:
        config = _current_config(repository, branch, known)
    if config is None:
        raise CheckpointError(
            f"{repo_id}{f' at {revision}' if revision else ''} is not in the hub's cache and HF_HUB_OFFLINE "
            "forbids to fetch it: unset HF_HUB_OFFLINE, or give a local folder"
        )
    return HubModel(repository, config.parent.name, config.parent)


def list_files(model: HubModel) -> frozenset[str]:
    """Which files does the commit have?"""
    return files.list_files(model.repository, model.commit).names


def small_file(model: HubModel, name: str) -> Path:
    """Where is this small file on disk? It is downloaded into the hub's cache if it is not there yet."""
    return files.fetch_file(model.repository, model.commit, name, _largest(name))


def locate(model: HubModel, name: str) -> RemoteFile:
    """Where are this file's bytes, how many are there, and what is their fingerprint?"""
    return files.locate_at(model.repository, model.commit, name)


def has_blob(model: HubModel, remote: RemoteFile) -> bool:
    """Is this content in the hub's cache, maybe for another commit?"""
    return has_content(model.repository, remote)


def link_blob(model: HubModel, remote: RemoteFile) -> None:
    """Let the snapshot folder have the content that is in the hub's cache."""
    files.keep(model.repository, model.commit, remote)


@contextmanager
def plain_model_errors(repo_id: str, revision: str | None) -> Iterator[None]:
    """Turn a full, read-only or unreadable disk under the caches, and what the hub answers, into one line."""
    try:
        with plain_errors(Repository("model", repo_id), revision):
            yield
    except OSError as error:
        where = f" at {error.filename}" if error.filename else ""
        raise CheckpointError(
            f"the hub's cache can't be used ({error.strerror or error}{where}); make room, or set HF_HOME to "
            "another folder"
        ) from error


def _largest(name: str) -> int:
    return LARGEST_JSON if name == CONFIG_FILE or name.endswith(".index.json") else LARGEST_SMALL_FILE


def _current_config(repository: Repository, branch: str, known: Path | None) -> Path:
    """The hub's current config.json. A hub that can't be reached is no obstacle to a model that is cached."""
    try:
        commit, remote = files.locate(repository, branch, CONFIG_FILE)
    except HubError:
        if known is None:
            raise
        return known
    if known is None or known.parent.name != commit:
        known = files.keep(repository, commit, remote, _largest(CONFIG_FILE))
    remember(repository, branch, commit)
    return known
