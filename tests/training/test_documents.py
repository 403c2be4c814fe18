"""Which documents are learned from, which are held out, and what is refused?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from failure import RecipeError
from tests.training.conftest import Script
from text import Document, documents, training_documents, write_documents


@given(st.lists(st.tuples(st.text(min_size=1), st.text()), max_size=8))
def test_written_documents_are_read_back(tmp_path_factory: pytest.TempPathFactory, pairs: list) -> None:
    folder = tmp_path_factory.mktemp("written")
    chosen = [Document("a/" + name.encode("utf-8", "replace").decode(), text) for name, text in pairs]
    assert write_documents(folder / "all.jsonl.zst", chosen) == len(chosen)
    if chosen:
        assert list(documents(folder)) == chosen


def test_about_one_document_in_a_hundred_is_held_out_by_its_id_alone() -> None:
    held_out = [n for n in range(20_000) if Document(f"gutenberg/{n}", "").held_out]
    assert 140 < len(held_out) < 260
    assert held_out == [n for n in range(20_000) if Document(f"gutenberg/{n}", "other text").held_out]


def test_held_out_documents_are_not_learned_from(text_folder: Path) -> None:
    everything = list(documents(text_folder))
    learned = list(training_documents(text_folder))
    assert 0 < len(everything) - len(learned) < 20
    assert {document.id for document in everything if document.held_out}.isdisjoint(d.id for d in learned)


def test_only_the_named_sources_are_read(text_folder: Path) -> None:
    assert {document.source for document in documents(text_folder, ["book"])} == {"book"}
    assert {document.source for document in documents(text_folder)} == {"book", "other"}


def test_all_three_kinds_of_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "plain.txt").write_text("one", encoding="utf-8")
    line = json.dumps({"id": "b/2", "text": "two"}) + "\n"
    (tmp_path / "b.jsonl").write_text(line, encoding="utf-8")
    (tmp_path / "c.jsonl.zst").write_bytes(zstandard.compress(line.replace("two", "three").encode()))
    (tmp_path / "ignored.md").write_text("no", encoding="utf-8")
    assert [document.text for document in documents(tmp_path)] == ["one", "two", "three"]
    assert next(documents(tmp_path)).id == "a/plain.txt"


@pytest.mark.parametrize("line", ["{", "[]", "3", '{"id": "a/1"}', "null"])
def test_a_line_that_is_no_document_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "bad.jsonl").write_text('{"id": "a/1", "text": "b"}\n' + line + "\n", encoding="utf-8")
    with pytest.raises(RecipeError, match=r"bad\.jsonl, line 2"):
        list(documents(tmp_path))


@pytest.mark.parametrize("name", ["bad.jsonl.zst", "bad.jsonl", "bad.txt"])
def test_bytes_that_are_no_text_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\xff\xfe\x00nothing")
    with pytest.raises(RecipeError, match="cannot be read"):
        list(documents(tmp_path))


@pytest.mark.parametrize("step", ["text", "tokenizer"])
def test_an_empty_folder_is_one_clear_line(tmp_path: Path, script: Script, step: str) -> None:
    ended = script(step, tmp_path, tmp_path / "out")
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert "has no text to train on" in ended.stderr
    assert not (tmp_path / "out").exists()


def test_sources_that_are_not_there_are_named_with_those_that_are(text_folder: Path) -> None:
    with pytest.raises(RecipeError, match=r"sources novels \(it has book, other\)"):
        list(documents(text_folder, ["novels"]))


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="is not a folder"):
        list(documents(tmp_path / "nowhere"))
