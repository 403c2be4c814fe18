"""Whose files are meant, and which names in an answer can be believed? They become names of files on this disk."""

import re
from dataclasses import dataclass
from typing import Literal

from detoklens.hub.answers import AnswerError

COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
ETAG = re.compile(r"[0-9A-Za-z_+=-][0-9A-Za-z._+=-]{0,127}")  # no slash, no dot in front
LONGEST_NAME = 255  # bytes of one part of a path: the limit of the usual file systems


@dataclass(frozen=True)
class Repository:
    """A model or a dataset on the hub."""

    kind: Literal["model", "dataset"]
    repo_id: str

    def __str__(self) -> str:
        return self.repo_id

    @property
    def instead(self) -> str:
        """What can the user give where the hub can't be had?"""
        return "give a local folder" if self.kind == "model" else "give local files"


@dataclass(frozen=True)
class RemoteFile:
    """One file of one commit, which therefore never changes: `etag` names its content."""

    name: str
    url: str
    size: int
    etag: str


def believed_commit(found: object) -> str:
    """A commit as the hub names it: hexadecimal digits, nothing else."""
    return _believed(found, COMMIT, "commit", "40 or 64 hexadecimal digits")


def believed_etag(found: object) -> str:
    """An etag without its quotes: one word that can't leave the folder in which it names a file."""
    return _believed(found, ETAG, "ETag", "one word of letters and digits")


def believed_path(found: object) -> str:
    """A file's name in its repository: a plain relative path that can't leave its folder."""
    if isinstance(found, str) and is_plain_path(found):
        return found
    raise AnswerError(f"it names a file {_shown(found)}, which is no plain relative path")


def is_plain_path(name: str) -> bool:
    """Is a name, taken as a path, sure to stay in the folder where it begins?"""
    return name.isprintable() and all(_is_plain(part) for part in name.split("/"))


def _is_plain(part: str) -> bool:
    return part not in ("", ".", "..") and not set(part) & {"\\", ":"} and len(part.encode()) <= LONGEST_NAME


def _believed(found: object, form: re.Pattern[str], what: str, accepted: str) -> str:
    if isinstance(found, str) and form.fullmatch(found):
        return found
    raise AnswerError(f"its {what} is {_shown(found)} where {accepted} are expected")


def _shown(found: object) -> str:
    text = ascii(found)
    return text if len(text) <= 80 else f"{text[:77]}…"
