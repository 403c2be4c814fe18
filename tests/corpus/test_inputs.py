"""Which files do arguments name?"""

import hashlib
import os
from pathlib import Path

import pytest

from detoklens.corpus import inputs
from detoklens.corpus.inputs import find_inputs, kind_of
from detoklens.errors import CorpusError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.jsonl", "a.txt", "sub/c.parquet", "sub/d.jsonl.zst", "README.md", ".hidden.txt", ".git/e.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    return tmp_path


def names(*arguments: object) -> list[str]:
    return [file.name for file in find_inputs(list(map(str, arguments)))]


def test_a_folder_is_all_its_countable_files_by_name(folder: Path) -> None:
    expected = ["a.txt", "b.jsonl", "sub/c.parquet", "sub/d.jsonl.zst"]
    assert names(folder) == [str(folder / name) for name in expected]


def test_globs_and_files_come_in_the_order_given_and_once(folder: Path) -> None:
    expected = [folder / "b.jsonl", folder / "sub/c.parquet", folder / "a.txt", folder / "sub/d.jsonl.zst"]
    found = names(folder / "b.jsonl", folder / "sub" / "*.parquet", folder / "*", folder / "**" / "*", folder / "a.txt")
    assert found == list(map(str, expected))


def test_a_file_by_another_way_to_it_is_not_read_twice(folder: Path) -> None:
    assert names(folder / "a.txt", f"{folder}/sub/../a.txt") == [str(folder / "a.txt")]


def test_a_file_is_pinned_by_size_and_both_ends(tmp_path: Path) -> None:
    content = os.urandom(1_500_000)
    (tmp_path / "a.txt").write_bytes(content)
    pin = find_inputs([tmp_path / "a.txt"])[0].pin()
    assert pin == {
        "path": str(tmp_path / "a.txt"),
        "size": 1_500_000,
        "first_block": hashlib.sha256(content[: 1 << 20]).hexdigest(),
        "last_block": hashlib.sha256(content[-(1 << 20) :]).hexdigest(),
    }


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.txt", (".txt", None)),
        ("a.b.jsonl.gz", (".jsonl", "gzip")),
        ("A.TXT.ZST", (".txt", "zstd")),
        ("a.parquet", (".parquet", None)),
        ("a.parquet.gz", ("", None)),
        ("a.gz", ("", None)),
        ("jsonl", ("", None)),
    ],
)
def test_the_kind_is_read_off_the_name(name: str, expected: tuple[str, str | None]) -> None:
    assert kind_of(name) == expected


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("README.md", "unsupported file type; accepted are"),
        ("*.csv", "no supported files found"),
        (".git/nothing", "no such file or folder"),
        ("empty", "no supported files found"),
    ],
)
def test_what_can_not_be_counted_is_refused(argument: str, message: str, folder: Path) -> None:
    (folder / "empty").mkdir()
    with pytest.raises(CorpusError, match=message):
        names(folder / argument)


def test_no_input_is_refused() -> None:
    with pytest.raises(CorpusError, match="no input"):
        find_inputs([])


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_named(folder: Path) -> None:
    (folder / "a.txt").chmod(0)
    with pytest.raises(CorpusError, match="Permission denied"):
        names(folder / "a.txt")


def test_a_pipe_is_refused_by_name_and_passed_over_in_a_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipes = [folder / name for name in ("pipe.txt", "pipe")]
    for pipe in pipes:
        os.mkfifo(pipe)
    opened: list[str] = []
    monkeypatch.setattr(inputs, "describe", lambda name, _: opened.append(name))  # opening a pipe would wait for ever
    find_inputs([folder])
    assert len(opened) == 4
    for pipe in pipes:
        with pytest.raises(CorpusError, match="pipes and devices can't be read in parts"):
            find_inputs([pipe])


@pytest.fixture
def locked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A subfolder that may not be read, for root neither."""
    scandir, access = os.scandir, os.access

    def refused(path: str) -> bool:
        return os.path.abspath(path) == str(folder / "sub")

    def refusing_scandir(path: str) -> object:
        if refused(path):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing_scandir)
    monkeypatch.setattr(os, "access", lambda path, mode: not refused(path) and access(path, mode))
    return folder / "sub"


@pytest.mark.parametrize("argument", ["", "**", "**/*", "*/*.parquet", "sub/*", "s*/**", "**/c.parquet"])
def test_a_folder_that_may_not_be_read_is_not_passed_over(argument: str, folder: Path, locked: Path) -> None:
    with pytest.raises(CorpusError, match=r"sub/?: a folder that can't be read \(Permission denied\)"):
        names(folder / argument)


@pytest.mark.parametrize("argument", ["*.txt", "a.txt", "[ab].*", "*"])
def test_a_folder_that_is_not_looked_into_need_not_be_readable(argument: str, folder: Path, locked: Path) -> None:
    assert str(folder / "a.txt") in names(folder / argument)


def test_a_linked_folder_is_not_passed_over(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "z.txt").write_text("the sand")
    (folder / "linked").symlink_to(elsewhere)
    with pytest.raises(CorpusError, match=r"linked: a link to a folder, which is not followed; .* or pass the glob"):
        names(folder)
    assert str(folder / "linked" / "z.txt") in names(folder / "**")
    assert names(folder / "linked") == [str(folder / "linked" / "z.txt")]


def test_a_folder_that_links_to_itself_is_read_once(folder: Path) -> None:
    (folder / "sub" / "again").symlink_to(folder)
    assert sorted(path.rsplit("/", 1)[1] for path in names(folder / "**")) == [
        "a.txt",
        "b.jsonl",
        "c.parquet",
        "d.jsonl.zst",
    ]


def test_a_linked_file_is_read_and_a_hidden_link_passed_over(folder: Path) -> None:
    (folder / "linked.txt").symlink_to(folder / "a.txt")
    (folder / ".linked").symlink_to(folder / "sub")
    assert str(folder / "linked.txt") in names(folder)
