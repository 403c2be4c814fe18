"""Files and folders that can't be what was asked for: one line, never a traceback."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import ClassVar

import pytest

from tests.command_line import PROGRAM, refuse, run
from tests.corpus.plain_counting import edit_sealed
from tests.spelled import LINES, write_spelled

pytestmark = pytest.mark.usefixtures("few_words", "undrawn")

PAGES = ("report", "compare")


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
    assert "nothing is written through links" in refuse(*asked, tmp_path / "linked")
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
    edit_sealed(counts / "manifest.json", lambda manifest: manifest.update({section: content}))
    assert "incomplete" in refuse("counts", "show", counts)


@pytest.mark.parametrize(
    ("section", "content"), [("inputs", [{}]), ("inputs", 5), ("options", []), ("tokenizer", None)]
)
def test_counting_into_counts_with_an_edited_manifest_is_refused(section, content, model, text, counts):
    edit_sealed(counts / "manifest.json", lambda manifest: manifest.update({section: content}))
    assert "is damaged" in refuse("count", text, "--tokenizer", model, "--out", counts, "--workers", "1")


class TestPathsThatAreNoUtf8:
    """Linux takes any bytes as a name; Python shows those that are no UTF-8 as lone surrogates."""

    ASKED: ClassVar = {
        "partners": ("MODEL", "--token-id", "300", "--out", "OUT"),
        "auroc": ("MODEL", "--counts", "COUNTS", "--workers", "2", "--bootstrap", "0", "--out", "OUT"),
        "explain": ("MODEL", "--token-ids", "1,2,300", "--out", "OUT"),
        "count": ("TEXT", "--tokenizer", "MODEL", "--workers", "1", "--out", "OUT"),
        "report": ("MODEL", "--counts", "COUNTS", "--text", "TEXT", "--workers", "1", "--out", "OUT"),
        "compare": ("MODEL", "again=MODEL", "--workers", "1", "--out", "OUT"),
    }

    @pytest.fixture
    def places(self, model, text, counts, tmp_path) -> dict[str, str]:
        strange = tmp_path / os.fsdecode(b"strange \xff\xc3")
        strange.mkdir()
        for name, path in (("model", model), ("text.txt", text), ("counts", counts)):
            (strange / name).symlink_to(path)
        names = {"MODEL": "model", "TEXT": "text.txt", "COUNTS": "counts", "OUT": "out"}
        return {word: str(strange / name) for word, name in names.items()}

    @pytest.mark.parametrize("command", ASKED)
    def test_every_command_takes_them(self, command, places):
        words = [re.sub("MODEL|TEXT|COUNTS|OUT", lambda word: places[word[0]], word) for word in self.ASKED[command]]
        done = run(command, *words)
        assert any(Path(places["OUT"]).iterdir())
        if command in PAGES:
            assert done.stdout == f"{places['OUT']}/report.html\n"
            assert b"strange \\udcff" in Path(places["OUT"], "report.html").read_bytes()

    def test_a_program_reads_and_prints_their_bytes(self, places):
        words = [os.fsencode(places.get(word, word)) for word in ("report", "MODEL", "--workers", "1", "--out", "OUT")]
        done = subprocess.run([*PROGRAM, *words], capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout == os.fsencode(f"{places['OUT']}/report.html\n")

    def test_what_transformers_can_not_read_is_one_line(self, places):
        assert "is not UTF-8" in refuse("verify", places["MODEL"])
