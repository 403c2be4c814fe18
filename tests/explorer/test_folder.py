"""A bundle is written whole or not at all, never over something else, and read by the version that wrote it."""

from __future__ import annotations

import json
import shutil

import pytest

from detoklens.errors import OutputError
from detoklens.explorer import bundle
from detoklens.explorer import bundle as page
from detoklens.explorer.bundle import check_bundle, is_bundle, refuse_foreign, whole_folder, write_bundle
from detoklens.questions.study import Study
from tests.explorer.kinds import study_of
from tests.layers import random_layer


@pytest.fixture
def study():
    return Study(random_layer(vocab_size=30, dtype="float32"))


def test_an_explorer_replaces_an_explorer(study, tmp_path):
    folder = write_bundle(study, tmp_path / "out", cards_later=True)
    (folder / "arrays" / "left over").write_text("x")
    write_bundle(study, folder, cards_later=True)
    assert not (folder / "arrays" / "left over").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_what_somebody_put_beside_an_explorer_is_never_lost(study, tmp_path):
    folder = write_bundle(study, tmp_path / "out", cards_later=True)
    (folder / "CNAME").write_text("x")
    with pytest.raises(OutputError, match="holds 'CNAME' next to an explorer and is not overwritten; move that file"):
        write_bundle(study, folder, cards_later=True)
    assert (folder / "CNAME").exists()


def test_an_empty_folder_is_taken_and_its_parents_are_made(study, tmp_path):
    (tmp_path / "empty").mkdir()
    assert is_bundle(write_bundle(study, tmp_path / "empty", cards_later=True))
    assert is_bundle(write_bundle(study, tmp_path / "a/b/c", cards_later=True))


def test_something_else_is_never_overwritten(study, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").write_text("x")
    (tmp_path / "file").write_text("x")
    with pytest.raises(OutputError, match="contains other files and is not overwritten"):
        write_bundle(study, tmp_path / "mine")
    with pytest.raises(OutputError, match="is a file; pass a folder"):
        refuse_foreign(tmp_path / "file")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "mine", "thesis.txt"]


def test_what_interrupts_leaves_the_old_one(study, tmp_path, monkeypatch):
    folder = write_bundle(study, tmp_path / "out", cards_later=True)
    before = (folder / "bundle.json").read_bytes()
    monkeypatch.setattr(bundle, "head_cards", lambda _study: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_bundle(study, folder)
    assert (folder / "bundle.json").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_full_disk_is_one_line(tmp_path):
    with pytest.raises(OutputError, match="No space left on device; free some space"), whole_folder(tmp_path / "out"):
        raise OSError(28, "No space left on device")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("change", [{"format": 0}, {"format": 99}, {"format": None}])
def test_another_format_is_refused_by_name(study, tmp_path, change):
    folder = write_bundle(study, tmp_path / "out", cards_later=True)
    said = json.loads((folder / "bundle.json").read_text()) | change
    (folder / "bundle.json").write_text(json.dumps(said))
    with pytest.raises(OutputError, match=r"this version reads format 1: export it again"):
        check_bundle(folder)
    assert is_bundle(folder)  # ours still: it may be replaced


@pytest.mark.parametrize("content", ["", "[]", "nonsense", '{"kind": "report"}', "[" * 100_000])
def test_what_is_no_explorer_is_told_apart(tmp_path, content):
    (tmp_path / "bundle.json").write_text(content)
    assert not is_bundle(tmp_path)
    with pytest.raises(OutputError, match="is not an explorer folder"):
        check_bundle(tmp_path)


def test_all_paths_in_a_bundle_are_relative(tokens, tmp_path):
    folder = write_bundle(study_of("learned", tokens), tmp_path / "out", cards_later=True)
    shutil.move(folder, tmp_path / "moved")
    said = check_bundle(tmp_path / "moved")
    assert all((tmp_path / "moved" / about["file"]).is_file() for about in said["arrays"].values())
    assert str(tmp_path) not in (tmp_path / "moved/bundle.json").read_text()


def test_a_missing_page_is_one_line(study, tmp_path, monkeypatch):
    monkeypatch.setattr(page, "PAGE", tmp_path / "nowhere")
    with pytest.raises(OutputError, match="the explorer's page is missing; reinstall detoklens"):
        write_bundle(study, tmp_path / "out")
