"""A bundle's folder: made whole or not at all, told from others, read again by the version that wrote it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from detoklens.errors import OutputError, shown
from detoklens.scratch import scratch_folder
from detoklens.writing import make_folder, plain_output_errors

BUNDLE = "bundle.json"
KIND = "detoklens explorer"
FORMAT = 1
"""Goes up when a page can't read what an earlier version wrote."""
OURS = {"arrays", "assets", "counts", "built.json", BUNDLE, "heads.json", "index.html", "licences.txt"}
OURS |= {"tokenizer.json", "tokens.json"}
"""All that a bundle holds."""


def is_bundle(folder: Path) -> bool:
    """Whether a folder holds an explorer, of whatever version."""
    return _described(folder).get("kind") == KIND


def check_bundle(folder: Path) -> dict[str, Any]:
    """What a finished bundle says of itself; an error where it is none, or of another format."""
    described = _described(folder)
    if described.get("kind") != KIND:
        raise OutputError(f"{folder}: no explorer ({BUNDLE} is missing or is something else); name its folder")
    if described.get("format") != FORMAT:
        raise OutputError(
            f"{folder}: an explorer of format {described.get('format')!r}, written by detoklens "
            f"{described.get('detoklens')!r}; this version reads format {FORMAT}: export it again from the model"
        )
    return described


def refuse_foreign(folder: Path) -> None:
    """An error where a folder holds anything but an explorer of ours; nothing is written."""
    with plain_output_errors(folder):
        if folder.exists() and not folder.is_dir():
            raise OutputError(f"{folder} is a file; name a folder")
        if folder.is_dir() and any(folder.iterdir()) and not is_bundle(folder):
            raise OutputError(f"{folder} holds something else and is not overwritten; name a new or empty folder")
        strange = {path.name for path in folder.iterdir()} - OURS if folder.is_dir() else set()
        if strange:
            raise OutputError(
                f"{folder} holds {shown(min(strange))} beside an explorer and is not overwritten; move it away, or "
                "name another folder"
            )


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A folder to write into that is renamed at the end; after an error the old one is as it was.

    Between two renames the old one has another name: a process that is killed there leaves it, and the next one takes
    it back.
    """
    folder = folder.resolve()
    old = folder.with_name(f".{folder.name}.old")
    _take_back(old, folder)
    refuse_foreign(folder)
    make_folder(folder.parent)
    with plain_output_errors(folder), scratch_folder(folder.parent) as scratch:
        written = scratch / "new"
        written.mkdir()
        yield written
        if folder.exists():
            folder.rename(old)
        try:
            written.rename(folder)
        except OSError:
            _take_back(old, folder)
            raise
        shutil.rmtree(old, ignore_errors=True)


def _take_back(old: Path, folder: Path) -> None:
    """Finish what a killed process left: its old export comes back where there is no new one, else it is removed."""
    if old.is_symlink() or not is_bundle(old):
        return
    with plain_output_errors(folder):
        if folder.exists():
            shutil.rmtree(old)
        else:
            old.rename(folder)


def _described(folder: Path) -> dict[str, Any]:
    try:
        described = json.loads((folder / BUNDLE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return described if isinstance(described, dict) else {}
