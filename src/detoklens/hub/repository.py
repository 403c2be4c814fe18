"""The files of a model or dataset on the hub, and huggingface_hub's cache of them.

The cache has huggingface_hub's layout, so both find each other's files: `blobs/<etag>` holds content,
`snapshots/<commit>/<name>` links to it, and `refs/<branch>` holds the commit of a branch. Commits, etags and names come
from the server and become file names, so they are checked first.
"""

import os
import re
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from huggingface_hub import cached_assets_path, constants, hf_hub_url, try_to_load_from_cache
from huggingface_hub.file_download import repo_folder_name
from huggingface_hub.utils import WeakFileLock, validate_repo_id

from detoklens.errors import HubError, parse_json, shown
from detoklens.hub.session import AnswerError, Assembly, RefusedError, RemoteFile, download, one_line_errors, request
from detoklens.writing import write_whole

MAIN = "main"
CONVERTED = "refs/convert/parquet"
"""The branch with the hub's parquet copy of a dataset in another format."""
COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
ETAG = re.compile(r"[0-9A-Za-z_+=-][0-9A-Za-z._+=-]{0,127}")  # no slash, no leading dot
MAX_NAME_BYTES = 255  # of one part of a path: the limit of common file systems


@dataclass(frozen=True)
class Repository:
    """A model or dataset on the hub."""

    kind: Literal["model", "dataset"]
    repo_id: str

    def __str__(self) -> str:
        return self.repo_id

    def list_files(self, revision: str) -> tuple[str, frozenset[str]]:
        """Return the commit of a revision and the names of its files. (`fetch` checks a name before using it.)"""
        answer = self._ask(f"revision/{quote(revision, safe='')}")
        names = _names_in(answer.get("siblings"), "rfilename", "files")
        return _validate(answer.get("sha"), COMMIT, "commit"), frozenset(names)

    def list_revisions(self) -> list[str]:
        """Return the names of all branches and tags; offline, of those whose commit is cached."""
        validate_repo_id(self.repo_id)
        if is_offline():
            cached = self._folder / "refs"
            return sorted(path.relative_to(cached).as_posix() for path in cached.rglob("*") if path.is_file())
        answer = self._ask("refs")
        names = [name for kind in ("branches", "tags") for name in _names_in(answer.get(kind, []), "name", kind)]
        if not all(map(is_plain_path, names)):
            raise AnswerError("it lists a branch or tag without a usable name")
        return sorted(names)

    def _ask(self, what: str) -> dict[str, Any]:
        """The hub API's answer about this repository."""
        validate_repo_id(self.repo_id)
        try:
            return parse_json(request("GET", f"{constants.ENDPOINT}/api/{self.kind}s/{self}/{what}")[1])
        except ValueError as error:
            raise AnswerError("it is not a JSON object") from error

    def locate(self, revision: str, name: str) -> tuple[str, RemoteFile]:
        """Return the commit of a revision, and the URL, size and etag of one of its files."""
        if not is_plain_path(name):
            raise AnswerError(f"it names a file {shown(name)}, which is not a plain relative path")
        headers, _ = request("HEAD", self._url(revision, name))
        etag = (headers.get("x-linked-etag") or headers.get("etag", "")).removeprefix("W/").strip('"')
        size = headers.get("x-linked-size") or headers.get("content-length", "")
        if not (headers.get("x-repo-commit") and etag and size.isascii() and size.isdigit() and len(size) < 16):
            raise AnswerError(f"it lacks the commit, ETag or size of {name}")
        commit = _validate(headers["x-repo-commit"], COMMIT, "commit")
        if COMMIT.fullmatch(revision) and commit != revision:
            raise AnswerError(f"it has commit {commit} of {name}, requested was {revision}")
        return commit, RemoteFile(name, self._url(commit, name), int(size), _validate(etag, ETAG, "ETag"))

    def cached(self, revision: str, name: str) -> Path | None:
        """Return the path of a cached file; for a branch, the file as of the last request."""
        found = try_to_load_from_cache(self.repo_id, name, revision=revision, repo_type=self.kind)
        return Path(found) if isinstance(found, str) else None

    def fetch(self, commit: str, name: str, max_bytes: int | None = None) -> Path:
        """Return the path of a file in the cache; download it if it is not there."""
        found = self.cached(commit, name) if is_plain_path(name) else None
        return found or self.store(commit, self.locate(commit, name)[1], max_bytes)

    def store(self, commit: str, remote: RemoteFile, max_bytes: int | None = None) -> Path:
        """Download a located file into the cache, or link to its content if that is cached."""
        if max_bytes is not None and remote.size > max_bytes:
            raise HubError(f"{self}: {remote.name} has {remote.size:,} bytes, limit {max_bytes:,}; not downloaded")
        blob, pointer = self._blob(remote), self.snapshot(commit) / remote.name
        lock = self._folder.parent / ".locks" / self._folder.name / f"{remote.etag}.lock"
        for path in (blob, pointer, lock):
            path.parent.mkdir(parents=True, exist_ok=True)
        with WeakFileLock(lock):
            if not self.has_content(remote):
                download(Assembly(((remote, (range(remote.size),)),)), blob)
            _link(pointer, blob)
        return pointer

    def has_content(self, remote: RemoteFile) -> bool:
        """Whether the cache holds this content, perhaps for another commit."""
        blob = self._blob(remote)
        return blob.is_file() and blob.stat().st_size == remote.size

    def snapshot(self, commit: str) -> Path:
        """The folder of a commit's files in the cache."""
        return self._folder / "snapshots" / commit

    def cached_commit(self, revision: str) -> str | None:
        """The commit of a branch as of the last request."""
        reference = self._folder / "refs" / revision
        if COMMIT.fullmatch(revision):
            return revision
        commit = reference.read_text() if reference.is_file() else ""
        return commit if COMMIT.fullmatch(commit) else None

    def remember_commit(self, revision: str, commit: str) -> None:
        """Store the commit of a branch, for offline use."""
        reference = self._folder / "refs" / revision
        if revision == commit or (reference.is_file() and reference.read_text() == commit):
            return
        reference.parent.mkdir(parents=True, exist_ok=True)
        write_whole(reference, commit.encode())

    def assets_folder(self, commit: str) -> Path:
        """Return our own folder for one commit, in huggingface_hub's assets cache."""
        return cached_assets_path(library_name="detoklens", namespace=self.repo_id, subfolder=commit)

    @property
    def _folder(self) -> Path:
        return Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=self.repo_id, repo_type=self.kind)

    def _blob(self, remote: RemoteFile) -> Path:
        return self._folder / "blobs" / remote.etag

    def _url(self, revision: str, name: str) -> str:
        return hf_hub_url(self.repo_id, name, repo_type=self.kind, revision=revision, endpoint=constants.ENDPOINT)


def fetch_folder(place: str, suffixes: tuple[str, ...]) -> Path:
    """Return a local copy of a dataset's folder, `hf:USER/NAME[/FOLDER][@REVISION]`, with its files of some kinds.

    With HF_HUB_OFFLINE=1 only the cache is used.
    """
    found = re.fullmatch(r"hf:([^/@]+/[^/@]+)((?:/[^/@]+)*)/?(?:@(.+))?", place)
    if not (found and all(is_plain_path(part or MAIN) for part in (found[2].lstrip("/"), found[3]))):
        raise HubError(f"{place!r} is not a folder on the hub; write hf:USER/NAME or hf:USER/NAME/FOLDER@REVISION")
    dataset, inside, revision = Repository("dataset", found[1]), found[2].lstrip("/"), found[3] or MAIN
    with one_line_errors(dataset, revision):
        if is_offline():
            commit = dataset.cached_commit(revision)
            local = None if commit is None else dataset.snapshot(commit) / inside
            if local is None or not local.is_dir():
                raise HubError(f"{place} is not in the hub's cache and HF_HUB_OFFLINE is set; unset HF_HUB_OFFLINE")
            return local
        commit, files = dataset.list_files(revision)
        wanted = sorted(file for file in files if file.rpartition("/")[0] == inside and file.endswith(suffixes))
        if not wanted:
            raise HubError(f"{place} has no {' or '.join(suffixes)} file on the hub; check the name of the folder")
        for file in wanted:
            dataset.fetch(commit, file)
        dataset.remember_commit(revision, commit)
        return dataset.snapshot(commit) / inside


def fetch_dataset(
    repo_id: str, pattern: str, accepts: Callable[[str], bool], companions: tuple[str, ...]
) -> list[tuple[str, Path]]:
    """Return (name, local path) of the accepted files of a dataset that match the pattern, if there is one.

    They are the main branch's or, if it has none, those of the hub's parquet copy. Files with the same stem and one of
    these endings, their `companions`, are fetched too.
    """
    dataset, below = Repository("dataset", repo_id), pattern.rstrip("/") + "/"
    with one_line_errors(dataset, MAIN):
        for branch in (MAIN, CONVERTED):
            try:
                commit, listed = dataset.list_files(branch)
            except RefusedError as error:
                if error.code != "RevisionNotFound":
                    raise
                continue
            matching = (f for f in listed if not pattern or fnmatchcase(f, pattern) or f.startswith(below))
            files = sorted(file for file in matching if accepts(file))
            for file in (os.path.splitext(file)[0] + ending for file in files for ending in companions):
                if file in listed:
                    dataset.fetch(commit, file)
            if files:
                return [(f"{dataset}/{file}", dataset.fetch(commit, file)) for file in files]
    return []


def is_offline() -> bool:
    """Whether HF_HUB_OFFLINE=1 forbids network access."""
    return bool(constants.HF_HUB_OFFLINE)


def lock_folder(folder: Path) -> AbstractContextManager[Any]:
    """Let one process at a time work in a folder."""
    return WeakFileLock(folder / ".lock")


def is_plain_path(name: str) -> bool:
    """Whether a name, used as a relative path, stays in its folder on every system."""
    return name.isprintable() and all(
        part not in ("", ".", "..") and not set(part) & {"\\", ":"} and len(part.encode()) <= MAX_NAME_BYTES
        for part in name.split("/")
    )


def _names_in(listed: object, key: str, what: str) -> list[str]:
    """The names in a list of the hub's API, unchecked."""
    if not isinstance(listed, list):
        raise AnswerError(f"it is not a list of {what}")
    names = [entry.get(key) if isinstance(entry, dict) else None for entry in listed]
    if not all(isinstance(name, str) for name in names):
        raise AnswerError(f"it lists {what} without a name")
    return list(map(str, names))


def _validate(found: object, pattern: re.Pattern[str], what: str) -> str:
    if isinstance(found, str) and pattern.fullmatch(found):
        return found
    raise AnswerError(f"its {what} is {shown(found)}, which is not a valid {what}")


def _link(pointer: Path, blob: Path) -> None:
    """Create a relative link, or a copy where links can't be created."""
    if pointer.exists() and pointer.samefile(blob):
        return
    pointer.unlink(missing_ok=True)
    try:
        pointer.symlink_to(os.path.relpath(blob, pointer.parent))
    except OSError:
        shutil.copyfile(blob, pointer)
