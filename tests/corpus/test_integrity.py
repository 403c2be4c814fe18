"""Finished counts are hashed once for each state of their files, and no damaged one is believed."""

import os
from pathlib import Path

import pytest

from detoklens.corpus import counts_folder
from detoklens.corpus.count import count_corpus
from detoklens.corpus.counts import Counts
from detoklens.engines import open_engine
from detoklens.errors import CountsError
from detoklens.tokens import Vocabulary
from tests.corpus.plain_counting import folder_bytes, write_jsonl

FILES = ["bigrams.parquet", "tokens.parquet"]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of its own, and no file is too young to be remembered."""
    monkeypatch.delenv("DETOKLENS_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(counts_folder, "RECENT", 0)
    monkeypatch.setattr(counts_folder, "_checked", set())
    return tmp_path / "cache" / "detoklens" / "checked"


@pytest.fixture
def folder(small_vocabulary: Vocabulary, tmp_path: Path, cache: Path) -> Path:
    source = write_jsonl(tmp_path / "t.jsonl", ["the sand in the thin band", "", "zebra"])
    with open_engine("local", 1) as engine:
        count_corpus([source], small_vocabulary, tmp_path / "counts", engine=engine)
    return tmp_path / "counts"


@pytest.fixture
def hashed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files whose sha256 was computed since the counting."""
    names: list[str] = []
    file_hash = counts_folder.file_hash
    monkeypatch.setattr(counts_folder, "file_hash", lambda path: (names.append(path.name), file_hash(path))[1])
    monkeypatch.setattr(counts_folder, "_checked", set())
    for path in counts_folder.cache_folder("checked").iterdir():  # type: ignore[union-attr]
        path.unlink()
    return names


def flip(path: Path, place: int) -> None:
    """Change one bit in place, with the length and the time of the last change as they were."""
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(place)
        (byte,) = file.read(1)
        file.seek(place)
        file.write(bytes([byte ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_is_refused(name: str, folder: Path) -> None:
    Counts.open(folder)  # and remembered
    flip(folder / name, (folder / name).stat().st_size // 2)
    with pytest.raises(CountsError, match=rf"{name}: damaged \(its sha256 is not the manifest's\); delete"):
        Counts.open(folder)


def test_a_checked_file_is_not_hashed_again(folder: Path, hashed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    Counts.open(folder)
    Counts.open(folder)
    assert hashed == FILES
    monkeypatch.setattr(counts_folder, "_checked", set())  # another process
    Counts.open(folder)
    assert hashed == FILES


@pytest.mark.parametrize("change", ["touch", "copy", "link", "chmod"])
def test_another_state_is_hashed_again(change: str, folder: Path, hashed: list[str]) -> None:
    Counts.open(folder)
    path = folder / "tokens.parquet"
    if change == "touch":
        path.touch()
    elif change == "copy":
        content = path.read_bytes()
        path.unlink()
        path.write_bytes(content)
    elif change == "link":
        path.rename(folder / "other")
        path.symlink_to(folder / "other")
    else:
        path.chmod(0o600)
    Counts.open(folder)
    assert hashed == [*FILES, "tokens.parquet"]


def test_a_file_just_written_is_not_remembered(
    folder: Path, hashed: list[str], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It could be changed once more within the same tick of the file system's clock."""
    monkeypatch.setattr(counts_folder, "RECENT", 3600 * 10**9)
    Counts.open(folder)
    Counts.open(folder)
    assert hashed == FILES * 2
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize("obstacle", ["no home", "a file", "read-only"])
def test_without_a_cache_folder_files_are_hashed_in_every_process(
    obstacle: str, folder: Path, hashed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    if obstacle == "no home":
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setattr(Path, "home", homeless)
    elif obstacle == "a file":
        (tmp_path / "file").touch()
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    else:
        monkeypatch.setattr(counts_folder, "open_cached", refuse)
    before = folder_bytes(folder)
    Counts.open(folder)
    Counts.open(folder)
    assert hashed == FILES
    monkeypatch.setattr(counts_folder, "_checked", set())  # another process
    Counts.open(folder)
    assert hashed == FILES * 2
    assert folder_bytes(folder) == before


def test_few_states_are_kept(folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts_folder, "MAX_REMEMBERED", 3)
    for _ in range(5):
        (folder / "tokens.parquet").touch()
        Counts.open(folder)
    assert len(list(cache.iterdir())) == 3
