"""The files of a dataset on the Hugging Face hub; the only place where counting touches the network."""

from __future__ import annotations

import fnmatch
from typing import Any

from detoklens.corpus.inputs import ACCEPTED, kind_of
from detoklens.errors import CorpusError

CONVERTED = "refs/convert/parquet"
"""The branch on which the hub keeps a parquet copy of datasets that are something else."""

PATIENCE = 30
"""Seconds to wait for the list of a dataset's files."""


def download_dataset(argument: str) -> list[tuple[str, str]]:
    """(name, local path) of the files of `owner/name`, or of those that match `owner/name/pattern`.

    Files land in the hub's own cache, and are not fetched twice.
    """
    owner, name, *pattern = argument.split("/")
    dataset = f"{owner}/{name}"
    try:
        revision, files = _files(dataset, "/".join(pattern))
        return [(f"{dataset}/{file}", _download(dataset, file, revision)) for file in files]
    except CorpusError:
        raise
    except Exception as error:
        raise CorpusError(
            f"{argument}: no such file here, and not to be had from the hub ({_reason(error)})"
        ) from error


def _files(dataset: str, pattern: str) -> tuple[str | None, list[str]]:
    """The branch and the files on it that can be counted: the main one, else the hub's parquet copy."""
    from huggingface_hub import HfApi

    api = HfApi()
    for revision in (None, CONVERTED):
        listed = _list(api, dataset, revision)
        files = sorted(file for file in listed if kind_of(file)[0] and _matches(file, pattern))
        if files:
            return revision, files
    wanted = f" that match {pattern!r}" if pattern else ""
    raise CorpusError(f"{dataset}: the hub dataset has no files{wanted} that can be counted; accepted are {ACCEPTED}")


def _list(api: Any, dataset: str, revision: str | None) -> list[str]:
    from huggingface_hub.errors import RevisionNotFoundError

    try:
        listing = api.dataset_info(dataset, revision=revision, timeout=PATIENCE)
    except RevisionNotFoundError:
        return []
    return [file.rfilename for file in listing.siblings or []]


def _matches(file: str, pattern: str) -> bool:
    return not pattern or fnmatch.fnmatchcase(file, pattern) or file.startswith(pattern.rstrip("/") + "/")


def _download(dataset: str, file: str, revision: str | None) -> str:
    from huggingface_hub import hf_hub_download

    return str(hf_hub_download(dataset, file, repo_type="dataset", revision=revision))


def _reason(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
