"""Files are written atomically, all together or not at all; a failure is a one-line error."""

from __future__ import annotations

import pytest

from detoklens.errors import OutputError
from detoklens.writing import make_folder, plain_output_errors, refuse_links, whole_files, write_whole


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
    with pytest.raises(OutputError, match=r"file/folder: Not a directory; choose a folder"):
        make_folder(tmp_path / "file" / "folder")
    with pytest.raises(OutputError, match=r"nowhere/file: No such file or directory"):
        write_whole(tmp_path / "nowhere" / "file", b"content")


def test_a_disk_that_is_full_is_known_by_the_number_of_items_that_numpy_could_write(tmp_path):
    told = pytest.raises(OutputError, match=r"takes no more \(4096 requested and 0 written\); free some space")
    with told, plain_output_errors(tmp_path):
        raise OSError("4096 requested and 0 written")


def test_what_a_killed_process_left_is_removed_by_the_next_write(tmp_path):
    left, foreign = tmp_path / ".file.0123.partial", tmp_path / ".other.0123.partial"
    for path in (left, foreign):
        path.write_bytes(b"half")
    write_whole(tmp_path / "file", b"whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".other.0123.partial", "file"]


def test_a_file_that_is_being_written_is_not_taken_for_a_leftover(tmp_path):
    with whole_files(tmp_path / "file") as (partial,):
        partial.write_bytes(b"slow")
        write_whole(tmp_path / "file", b"quick")
        assert partial.exists()
    assert (tmp_path / "file").read_bytes() == b"slow"


def test_a_link_is_replaced_and_not_followed(tmp_path):
    (tmp_path / "foreign").write_bytes(b"kept")
    (tmp_path / "file").symlink_to(tmp_path / "foreign")
    write_whole(tmp_path / "file", b"new")
    assert [(tmp_path / name).read_bytes() for name in ("foreign", "file")] == [b"kept", b"new"]
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "inside").symlink_to(tmp_path / "foreign")
    with pytest.raises(OutputError, match="inside is a link, and nothing is written through links"):
        refuse_links(tmp_path / "folder")
    refuse_links(tmp_path / "nowhere")
