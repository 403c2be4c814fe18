"""Files of a dataset on the Hugging Face hub. Nothing else in counting uses the network."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection

from detoklens.corpus.inputs import ACCEPTED, kind_of
from detoklens.errors import CorpusError, HubError
from detoklens.hub.errors import RefusedError, one_line_errors
from detoklens.hub.repository import MAIN, Repository

CONVERTED = "refs/convert/parquet"
"""The branch with the hub's parquet copy of a dataset in another format."""


def download_dataset(argument: str) -> list[tuple[str, str]]:
    """Return (name, local path) of the files of `owner/name`, or of those that match `owner/name/pattern`.

    Files are stored in the hub's cache and downloaded once.
    """
    owner, name, *pattern = argument.split("/")
    dataset = Repository("dataset", f"{owner}/{name}")
    try:
        with one_line_errors(dataset, MAIN):
            commit, files = _find_files(dataset, "/".join(pattern))
            return [(f"{dataset}/{file}", str(dataset.fetch(commit, file))) for file in files]
    except HubError as error:
        raise CorpusError(f"{argument}: not a local file, and not available from the hub ({error})") from error


def _find_files(dataset: Repository, pattern: str) -> tuple[str, list[str]]:
    """Return the commit and its countable files: the main branch's, else those of the hub's parquet copy."""
    for branch in (MAIN, CONVERTED):
        commit, listed = _list_files(dataset, branch)
        files = sorted(file for file in listed if kind_of(file)[0] and _matches(file, pattern))
        if files:
            return commit, files
    wanted = f" matching {pattern!r}" if pattern else ""
    raise CorpusError(f"{dataset}: the hub dataset has no files{wanted} that can be counted; accepted are {ACCEPTED}")


def _list_files(dataset: Repository, branch: str) -> tuple[str, Collection[str]]:
    try:
        return dataset.list_files(branch)
    except RefusedError as error:
        if error.code != "RevisionNotFound":
            raise
        return "", ()


def _matches(file: str, pattern: str) -> bool:
    return not pattern or fnmatch.fnmatchcase(file, pattern) or file.startswith(pattern.rstrip("/") + "/")
