"""Which files has a commit, where are their bytes, and where is one on this disk?"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from detoklens.errors import HubError
from detoklens.hub.answers import AnswerError, ask_headers, ask_json
from detoklens.hub.cache import cached, store
from detoklens.hub.plain_errors import asked_twice, plain_errors
from detoklens.hub.repository import RemoteFile, Repository, believed_commit, believed_etag, believed_path

BRANCH = "main"


@dataclass(frozen=True)
class Listing:
    """The names of all files of one commit, as the hub gives them."""

    commit: str
    names: frozenset[str]


def list_files(repository: Repository, revision: str) -> Listing:
    """Which commit is meant, and which files does it have?"""
    from huggingface_hub import constants
    from huggingface_hub.utils import validate_repo_id

    with plain_errors(repository, revision):
        validate_repo_id(repository.repo_id)
        at = f"{repository.kind}s/{repository}/revision/{quote(revision, safe='')}"
        answer = asked_twice(lambda: ask_json(f"{constants.ENDPOINT}/api/{at}"))
        return _listing(answer)


def locate(repository: Repository, revision: str, name: str) -> tuple[str, RemoteFile]:
    """Which commit is meant, where are this file's bytes in it, how many are there, and what names their content?"""
    from huggingface_hub import constants, hf_hub_url

    def url(at: str) -> str:
        return hf_hub_url(repository.repo_id, name, repo_type=repository.kind, revision=at, endpoint=constants.ENDPOINT)

    with plain_errors(repository, revision):
        headers = asked_twice(lambda: ask_headers(url(revision)))
        if not headers.get("x-repo-commit") or not (etag := _etag(headers)) or (size := _size(headers)) is None:
            raise HubError(
                f"{repository}: the hub's answer lacks commit, ETag or size of {name}; check HF_ENDPOINT, or "
                f"{repository.instead}"
            )
        commit = believed_commit(headers["x-repo-commit"])
        return commit, RemoteFile(believed_path(name), url(commit), size, believed_etag(etag))


def locate_at(repository: Repository, commit: str, name: str) -> RemoteFile:
    """The same for a commit that is known."""
    found, remote = locate(repository, commit, name)
    if found != commit:
        raise HubError(
            f"{repository}: the hub answers with commit {found} of {name} where {commit} was asked for; check "
            f"HF_ENDPOINT, or {repository.instead}"
        )
    return remote


def fetch_file(repository: Repository, commit: str, name: str, largest: int | None = None) -> Path:
    """Where is this file on disk? It is downloaded into the hub's cache if it is not there yet."""
    with plain_errors(repository, commit):
        found = cached(repository, commit, believed_path(name))
        return found or keep(repository, commit, locate_at(repository, commit, name), largest)


def keep(repository: Repository, commit: str, remote: RemoteFile, largest: int | None = None) -> Path:
    """Bring a file that has been located into the hub's cache, unless it has more than `largest` bytes."""
    if largest is not None and remote.size > largest:
        raise HubError(
            f"{repository}: {remote.name} has {remote.size:,} bytes, far more than such a file needs; not downloaded"
        )
    with plain_errors(repository, commit):
        return store(repository, commit, remote)


def _listing(answer: Any) -> Listing:
    if not isinstance(answer, dict) or not isinstance(siblings := answer.get("siblings"), list):
        raise AnswerError("it is no list of files")
    names = [file.get("rfilename") if isinstance(file, dict) else None for file in siblings]
    if not all(isinstance(name, str) for name in names):
        raise AnswerError("it lists files without a name")
    return Listing(believed_commit(answer.get("sha")), frozenset(map(str, names)))


def _etag(headers: Any) -> str:
    """The etag of the content without its quotes: the linked file's, where the hub keeps it elsewhere."""
    etag: str = headers.get("x-linked-etag") or headers.get("etag", "")
    return etag.removeprefix("W/").strip('"')


def _size(headers: Any) -> int | None:
    size = headers.get("x-linked-size") or headers.get("content-length", "")
    return int(size) if size.isascii() and size.isdigit() and len(size) < 16 else None
