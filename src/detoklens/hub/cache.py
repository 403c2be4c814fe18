"""huggingface_hub's folders: what is there already, and a file more.

Their layout is that library's: `blobs/<etag>` holds content, `snapshots/<commit>/<name>` links to it, and
`refs/<branch>` says which commit a branch was at. What is kept here is found by others, and what others kept is found
here. Only names that have been believed (see `repository`) get this far.
"""

import errno
import hashlib
import os
import re
import shutil
from pathlib import Path

from detoklens.hub.answers import AnswerError
from detoklens.hub.ranges import stream_ranges
from detoklens.hub.repository import RemoteFile, Repository

SHA256 = re.compile(r"[0-9a-f]{64}")


def cached(repository: Repository, revision: str, name: str) -> Path | None:
    """The file on disk, if it is in the hub's cache; of a branch, as it was when last asked for."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(repository.repo_id, name, revision=revision, repo_type=repository.kind)
    return Path(found) if isinstance(found, str) else None


def has_content(repository: Repository, remote: RemoteFile) -> bool:
    """Is the same content there, maybe under another commit?"""
    blob = _folder(repository) / "blobs" / remote.etag
    return blob.is_file() and blob.stat().st_size == remote.size


def store(repository: Repository, commit: str, remote: RemoteFile) -> Path:
    """Fetch a file into the hub's cache, or only link to its content if that is there."""
    from huggingface_hub.utils import WeakFileLock

    folder = _folder(repository)
    blob, pointer = folder / "blobs" / remote.etag, folder / "snapshots" / commit / remote.name
    lock = folder.parent / ".locks" / folder.name / f"{remote.etag}.lock"
    for path in (blob, pointer, lock):
        path.parent.mkdir(parents=True, exist_ok=True)
    with WeakFileLock(lock):
        if not has_content(repository, remote):
            _fetch(remote, blob)
        _link(pointer, blob)
    return pointer


def remember(repository: Repository, revision: str, commit: str) -> None:
    """Note which commit a branch is at, for the time when the hub can't be asked."""
    reference = _folder(repository) / "refs" / revision
    if revision == commit or (reference.is_file() and reference.read_text() == commit):
        return
    reference.parent.mkdir(parents=True, exist_ok=True)
    written = reference.with_name(f"{reference.name}.{os.getpid()}.writing")
    written.write_text(commit)
    written.replace(reference)


def _folder(repository: Repository) -> Path:
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    return Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=repository.repo_id, repo_type=repository.kind)


def _fetch(remote: RemoteFile, blob: Path) -> None:
    """Bring the whole content to `blob`; after an interruption the next call continues what has arrived."""
    partial = blob.with_name(f".{blob.name}.partial")  # no etag begins with a dot
    done = _usable_length(partial, remote)
    _refuse_full_disk(remote.size - done, blob)
    with partial.open("ab" if done else "wb") as file:
        for piece in stream_ranges(remote, [range(done, remote.size)]):
            file.write(piece)
    if SHA256.fullmatch(remote.etag) and _sha256(partial) != remote.etag:
        partial.unlink()
        raise AnswerError(f"the content of {remote.name} is not the one that its ETag {remote.etag} stands for")
    partial.replace(blob)


def _usable_length(partial: Path, remote: RemoteFile) -> int:
    length = partial.stat().st_size if partial.is_file() else 0
    return length if length <= remote.size else 0


def _refuse_full_disk(size: int, blob: Path) -> None:
    if size > shutil.disk_usage(blob.parent).free:
        raise OSError(errno.ENOSPC, f"no room for {size:,} bytes", str(blob.parent))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _link(pointer: Path, blob: Path) -> None:
    """A relative link, or a copy where links can't be made."""
    if pointer.exists() and pointer.samefile(blob):
        return
    pointer.unlink(missing_ok=True)
    try:
        pointer.symlink_to(os.path.relpath(blob, pointer.parent))
    except OSError:
        shutil.copyfile(blob, pointer)
