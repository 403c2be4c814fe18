"""Files appear whole, together, or not at all; what speaks against them is one line."""

from __future__ import annotations

import pytest

from detoklens.errors import OutputError
from detoklens.writing import make_folder, plain_output_errors, whole_files, write_whole


def test_files_that_belong_together_appear_together_or_not_at_all(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("old")
    with whole_files(first, second) as partial_paths:
        for path in partial_paths:
            path.write_text("new")
        assert first.read_text() == "old"
    assert [path.read_text() for path in (first, second)] == ["new", "new"]

    with pytest.raises(ZeroDivisionError), whole_files(first, second) as (partial, _):
        partial.write_text(str(1 // 0))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first", "second"]
    assert first.read_text() == "new"


def test_what_the_system_says_is_one_line_with_the_place(tmp_path):
    (tmp_path / "file").write_text("kept")
    with pytest.raises(OutputError, match=r"file/folder: Not a directory; name a folder"):
        make_folder(tmp_path / "file" / "folder")
    with pytest.raises(OutputError, match=r"nowhere/file: No such file or directory"):
        write_whole(tmp_path / "nowhere" / "file", b"content")


def test_a_disk_that_is_full_is_known_by_the_number_of_items_that_numpy_could_write(tmp_path):
    told = pytest.raises(OutputError, match=r"takes no more \(4096 requested and 0 written\); free some space")
    with told, plain_output_errors(tmp_path):
        raise OSError("4096 requested and 0 written")
