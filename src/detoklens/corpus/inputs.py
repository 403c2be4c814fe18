"""Input files: local files, folders, globs, and datasets on the hub. Nothing else in counting uses the network."""

from __future__ import annotations

import errno
import glob
import hashlib
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from detoklens.errors import CorpusError, HubError

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
KINDS = (".txt", ".jsonl", ".parquet")
BLOCK = 1 << 20
"""Bytes hashed at the start and at the end of a file: enough to tell files apart, fast on 10 TB."""


@dataclass(frozen=True)
class InputFile:
    """One input file: its name in messages, its path, its size and the hashes of its first and last block."""

    name: str
    path: str
    size: int
    first_block: str
    last_block: str

    @property
    def kind(self) -> str:
        return kind_of(self.path)[0]

    @property
    def compression(self) -> str | None:
        return kind_of(self.path)[1]

    def pin(self) -> dict[str, object]:
        """Return this file's entry in the manifest."""
        return {"path": self.name, "size": self.size, "first_block": self.first_block, "last_block": self.last_block}


def kind_of(path: str) -> tuple[str, str | None]:
    """Return the kind and the compression of a file from its name; ("", None) if the kind is not accepted."""
    stem, suffix = os.path.splitext(path.lower())
    compression = COMPRESSIONS.get(suffix)
    kind = os.path.splitext(stem)[1] if compression else suffix
    if kind not in KINDS or (compression and kind == ".parquet"):
        return "", None
    return kind, compression


@dataclass(frozen=True)
class Accepted:
    """The kinds of input files, and the endings of files that belong to them."""

    test: Callable[[str], bool]
    kinds: str
    companions: tuple[str, ...] = ()


TEXTS = Accepted(lambda path: bool(kind_of(path)[0]), ".txt, .jsonl (both also .gz or .zst) and .parquet")


def find_inputs(
    arguments: Sequence[str | Path], apart_from: Path | None = None, accepted: Accepted = TEXTS
) -> list[InputFile]:
    """Return the files named by the arguments, in order and without duplicates; skip those in `apart_from`."""
    if not arguments:
        raise CorpusError("no input given; pass files, folders, globs or a hub dataset")
    named: dict[str, tuple[str, str]] = {}
    for argument in arguments:
        for name, path in _files_of(str(argument), apart_from, accepted):
            folder, file = os.path.split(path)  # a glob may reach the same folder in several ways
            named.setdefault(os.path.join(os.path.realpath(folder), file), (name, path))
    return [describe(name, path) for name, path in named.values()]


def _files_of(argument: str, apart_from: Path | None, accepted: Accepted) -> list[tuple[str, str]]:
    """Return (name, path) of each file named by one argument."""
    if os.path.isdir(argument):
        paths = _below(argument)
    elif os.path.exists(argument):
        if not os.path.isfile(argument):
            raise CorpusError(f"{argument}: pipes and devices can't be read in parts; write the text to a file")
        if not accepted.test(argument):
            raise CorpusError(f"{argument}: unsupported file type; accepted are {accepted.kinds}")
        return [(argument, argument)]
    elif _is_hub_dataset(argument):
        return download_dataset(argument, accepted)
    elif glob.has_magic(argument):
        _check_searched(argument)
        paths = (path for path in glob.iglob(argument, recursive=True) if os.path.isfile(path))
    else:
        raise CorpusError(
            f"{argument}: no such file or folder; pass files, folders, globs or a hub dataset (owner/name)"
        )
    inputs = (path for path in paths if apart_from is None or apart_from not in Path(os.path.abspath(path)).parents)
    files = sorted(path for path in inputs if accepted.test(path))
    if not files:
        raise CorpusError(f"{argument}: no supported files found; accepted are {accepted.kinds}")
    return [(path, path) for path in files]


def _below(folder: str) -> Iterator[str]:
    """Yield the files below a folder; hidden files are skipped, and nothing else is left out silently."""
    for root, folders, files in os.walk(folder, onerror=_refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for path in (os.path.join(root, name) for name in folders):
            if os.path.islink(path):
                raise CorpusError(
                    f"{path}: a link to a folder, which is not followed; remove it, or pass the glob "
                    f"'{os.path.join(folder, '**')}', which follows links"
                )
        paths = (os.path.join(root, name) for name in files if not name.startswith("."))
        # skip pipes and devices; keep a broken link, which is then reported as unreadable
        yield from (path for path in paths if not os.path.exists(path) or os.path.isfile(path))


def _check_searched(pattern: str) -> None:
    """Refuse a glob that has to search an unreadable folder, which glob itself would skip."""
    folders, name = os.path.split(pattern)
    if glob.has_magic(folders):
        _check_searched(folders)
    searched = glob.iglob(folders or ".", recursive=True)
    below = glob.iglob(f"{pattern}/", recursive=True) if name == "**" else ()
    for folder in itertools.chain(searched, below):
        if os.path.isdir(folder) and not os.access(folder, os.R_OK | os.X_OK):
            _refuse(PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder))


def _refuse(error: OSError) -> None:
    raise CorpusError(
        f"{error.filename}: a folder that can't be read ({error.strerror}); fix its permissions, or pass files"
    ) from error


def _is_hub_dataset(argument: str) -> bool:
    """Whether the argument is owner/name or owner/name/pattern, and not a path to something local."""
    owner, *rest = argument.split("/")
    looks_like = bool(rest) and all(rest) and owner not in ("", ".", "..", "~") and not glob.has_magic(owner + rest[0])
    return looks_like and not os.path.exists(owner) and not kind_of("/".join([owner, rest[0]]))[0]


def describe(name: str, path: str) -> InputFile:
    """Return a file with its size and the hashes of its first and last block."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            first = hashlib.sha256(file.read(BLOCK)).hexdigest()
            file.seek(max(0, size - BLOCK))
            last = hashlib.sha256(file.read(BLOCK)).hexdigest()
    except OSError as error:
        raise CorpusError(f"{name}: can't be read ({error.strerror}); check the file and its permissions") from error
    return InputFile(name, os.path.abspath(path), size, first, last)


def download_dataset(argument: str, accepted: Accepted = TEXTS) -> list[tuple[str, str]]:
    """Return (name, local path) of the files of `owner/name`, or of those that match `owner/name/pattern`.

    Files are stored in the hub's cache and downloaded once.
    """
    from detoklens.hub.repository import fetch_dataset

    owner, name, *inside = argument.split("/")
    dataset, pattern = f"{owner}/{name}", "/".join(inside)
    try:
        files = fetch_dataset(dataset, pattern, accepted.test, accepted.companions)
    except HubError as error:
        raise CorpusError(f"{argument}: not a local file, and not available from the hub ({error})") from error
    if not files:
        wanted = f" matching {pattern!r}" if pattern else ""
        raise CorpusError(
            f"{dataset}: the hub dataset has no files{wanted} that can be counted; accepted are {accepted.kinds}"
        )
    return [(name, str(path)) for name, path in files]
