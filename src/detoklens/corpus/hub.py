"""The files of a dataset on the Hugging Face hub; the only place where counting touches the network."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection

from detoklens.corpus.inputs import ACCEPTED, kind_of
from detoklens.errors import CorpusError, HubError
from detoklens.hub.files import BRANCH, fetch_file, list_files
from detoklens.hub.plain_errors import MissingRevisionError
from detoklens.hub.repository import Repository

CONVERTED = "refs/convert/parquet"
"""The branch on which the hub keeps a parquet copy of datasets that are something else."""


def download_dataset(argument: str) -> list[tuple[str, str]]:
    """(name, local path) of the files of `owner/name`, or of those that match `owner/name/pattern`.

    Files land in the hub's own cache, and are not fetched twice.
    """
    owner, name, *pattern = argument.split("/")
    dataset = Repository("dataset", f"{owner}/{name}")
    try:
        commit, files = _files(dataset, "/".join(pattern))
        return [(f"{dataset}/{file}", str(fetch_file(dataset, commit, file))) for file in files]
    except (HubError, OSError) as error:
        raise CorpusError(f"{argument}: no such file here, and not to be had from the hub ({error})") from error


def _files(dataset: Repository, pattern: str) -> tuple[str, list[str]]:
    """The commit and its files that can be counted: the main branch's, else those of the hub's parquet copy."""
    for branch in (BRANCH, CONVERTED):
        commit, listed = _list(dataset, branch)
        files = sorted(file for file in listed if kind_of(file)[0] and _matches(file, pattern))
        if files:
            return commit, files
    wanted = f" that match {pattern!r}" if pattern else ""
    raise CorpusError(f"{dataset}: the hub dataset has no files{wanted} that can be counted; accepted are {ACCEPTED}")


def _list(dataset: Repository, branch: str) -> tuple[str, Collection[str]]:
    try:
        listing = list_files(dataset, branch)
    except MissingRevisionError:
        return "", ()
    return listing.commit, listing.names


def _matches(file: str, pattern: str) -> bool:
    return not pattern or fnmatch.fnmatchcase(file, pattern) or file.startswith(pattern.rstrip("/") + "/")
