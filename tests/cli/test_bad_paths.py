"""Files and folders that can't be what was asked for: one line, never a traceback."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.command_line import refuse, run
from tests.spelled import LINES, write_spelled


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return write_spelled(tmp_path_factory.mktemp("models") / "spelling")


@pytest.fixture
def text(tmp_path) -> Path:
    (tmp_path / "text.txt").write_text("\n".join(LINES), encoding="utf-8")
    return tmp_path / "text.txt"


@pytest.fixture
def counts(model, text, tmp_path) -> Path:
    run("count", text, "--tokenizer", model, "--out", tmp_path / "counts", "--workers", "1")
    return tmp_path / "counts"


@pytest.mark.parametrize(
    "command",
    [
        ("lexicon", "--top", "3", "--workers", "1"),
        ("heads",),
        ("auroc", "--truth", "merges", "--workers", "1"),
        ("report",),
    ],
    ids=lambda command: command[0],
)
def test_a_file_or_an_endless_name_as_output_is_one_line(command, model, text):
    name, *options = command
    assert str(text) in refuse(name, model, *options, "--out", text)
    assert "File name too long" in refuse(name, model, *options, "--out", text.parent / ("a" * 300))


def test_counting_into_places_that_can_not_be(model, text, tmp_path):
    asked = ("count", text, "--tokenizer", model, "--workers", "1", "--out")
    assert "is a file" in refuse(*asked, text)
    assert "too long" in refuse(*asked, tmp_path / ("a" * 300))
    (tmp_path / "linked" / ".counting").mkdir(parents=True)
    os.symlink(tmp_path / "nowhere" / "lock", tmp_path / "linked" / ".counting" / "lock")
    assert "can't be opened" in refuse(*asked, tmp_path / "linked")
    (tmp_path / "folded" / ".counting" / "lock").mkdir(parents=True)
    assert "can't be opened" in refuse(*asked, tmp_path / "folded")


@pytest.mark.parametrize(
    ("section", "content"),
    [
        ("totals", []),
        ("totals", {}),
        ("totals", None),
        ("files", {}),
        ("tokenizer", []),
        ("totals", {"documents": "x"}),
    ],
)
def test_an_edited_manifest_is_refused_by_those_who_read_it(section, content, counts):
    manifest = json.loads((counts / "manifest.json").read_text(encoding="utf-8"))
    manifest[section] = content
    (counts / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    assert "incomplete" in refuse("counts", "show", counts)


@pytest.mark.parametrize(
    ("section", "content"), [("inputs", [{}]), ("inputs", 5), ("options", []), ("tokenizer", None)]
)
def test_counting_into_counts_with_an_edited_manifest_is_refused(section, content, model, text, counts):
    manifest = json.loads((counts / "manifest.json").read_text(encoding="utf-8"))
    manifest[section] = content
    (counts / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    assert "is damaged" in refuse("count", text, "--tokenizer", model, "--out", counts, "--workers", "1")
