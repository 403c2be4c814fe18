"""That a counts file was found right is remembered by this user's own regular files only."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from detoklens.corpus import counts_folder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DETOKLENS_CACHE", str(tmp_path))
    monkeypatch.setattr(counts_folder, "_checked", set())
    return tmp_path / "checked"


def test_what_this_user_remembered_is_known(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not counts_folder._is_remembered("state")
    counts_folder._remember("state")
    counts_folder._checked.clear()
    assert counts_folder._is_remembered("state")
    monkeypatch.setattr(os, "geteuid", lambda: (folder / "state").stat().st_uid + 1)
    assert not counts_folder._is_remembered("state"), "a file of another user"


def test_links_and_pipes_are_not_believed_or_followed(folder: Path, tmp_path: Path) -> None:
    folder.mkdir()
    (tmp_path / "own").touch()
    (folder / "link").symlink_to(tmp_path / "own")
    (folder / "dangling").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(folder / "pipe")
    for name in ("link", "dangling", "pipe"):
        assert not counts_folder._is_remembered(name)
        counts_folder._remember(name)
    assert not (tmp_path / "elsewhere").exists()
