"""`detoklens words` as a user meets it."""

from __future__ import annotations

import json

import polars as pl
import pytest

from tests.command_line import refuse, run
from tests.spelled import write_spelled


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_spelled(tmp_path_factory.mktemp("spelled"))


def test_the_shipped_list_gives_one_row_a_head_and_three_tables(model, tmp_path):
    result = run("words", model, "--format", "json", "--out", tmp_path)
    printed = json.loads(result.stdout)
    rows = printed["rows"]
    assert [row["head"] for row in rows] == [0, 1, 2]
    assert (printed["verdict"]["value"], printed["verdict"]["heads"]) == ("no", [])
    assert " of one token (skipped)" in result.stderr
    names = sorted(path.name for path in tmp_path.glob("*.parquet"))
    assert names == ["word_pieces.parquet", "word_ranks.parquet", "words_by_head.parquet"]
    assert len(pl.read_parquet(tmp_path / "word_ranks.parquet")) == 3 * rows[0]["pairs"]


def test_a_users_list_word_by_word(model, tmp_path):
    words = tmp_path / "mine.txt"
    words.write_text("sapiens\ncentury\n", encoding="utf-8")
    rows = json.loads(run("words", model, words, "--by", "word", "--heads", "1", "--format", "json").stdout)["rows"]
    assert {(row["word"], row["head"]) for row in rows} == {("sapiens", 1)}


def test_a_figure_is_drawn_of_the_words(model, tmp_path):
    run("words", model, "--figure", tmp_path / "words.svg", "--width", "column")
    assert (tmp_path / "words.svg").stat().st_size > 1000


def test_bad_input_is_one_line(model, tmp_path):
    words = tmp_path / "mine.txt"
    assert f"{words}: no such file" in refuse("words", model, words)
    words.write_bytes(b"caf\xe9\n")
    assert f"{words}: not UTF-8 at byte 3" in refuse("words", model, words)
    words.write_text("century\n", encoding="utf-8")
    assert "splits none of the 1 words" in refuse("words", model, words)
    assert "head 7 does not exist" in refuse("words", model, "--heads", "7")
