"""`detoklens lexicon` as a user meets it."""

from __future__ import annotations

import json
from io import StringIO

import polars as pl
import pytest

from detoklens.tables.files import MARK, read_stored
from tests.command_line import call, refuse, run
from tests.spelled import write_spelled


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_spelled(tmp_path_factory.mktemp("spelled"))


def test_tables_are_written_and_nothing_else_is_left(model, tmp_path):
    words = tmp_path / "words.txt"
    words.write_text("the\n", encoding="utf-8")
    out = tmp_path / "out"
    result = run("lexicon", model, "--top", "30", "--words", words, "--workers", "1", "--out", out, "--format", "csv")
    assert pl.read_csv(StringIO(result.stdout))["head"].value_counts()["count"].to_list() == [30, 30, 30]
    names = ["lexicon.csv", "lexicon.parquet", "lexicon_by_head.csv", "lexicon_by_head.parquet"]
    assert sorted(path.name for path in out.iterdir()) == names
    written = pl.read_parquet(out / "lexicon.parquet")
    assert len(written) == 90
    assert written["is_word"].null_count() == 0
    assert json.loads(read_stored(out / "lexicon.parquet").metadata[MARK])["options"]["top"] == 30


@pytest.mark.parametrize("by", [[], ["--by", "pair"], ["--table", "lexicon"]])
def test_a_table_for_eyes_is_short_and_says_so(model, by):
    result = run("lexicon", model, "--top", "50", "--heads", "1", "--workers", "1", *by)
    assert len(result.stdout.splitlines()) < 30
    assert "the first 20 of each head (50 in total)" in result.stdout
    pairs = run("lexicon", model, "--top", "50", "--heads", "1", "--workers", "1", "--format", "csv", *by).stdout
    assert len(pl.read_csv(StringIO(pairs))) == 50


def test_a_summary_of_one_row_a_head(model):
    summary = run("lexicon", model, "--top", "50", "--by", "head", "--workers", "1", "--format", "json").stdout
    assert [row["pairs"] for row in json.loads(summary)["rows"]] == [50, 50, 50]


@pytest.mark.parametrize("name", ["lexicon", "lexicon_scores"])
def test_both_figures_are_drawn(model, tmp_path, name):
    run("lexicon", model, "--workers", "1", "--figure", tmp_path / "drawn.pdf", "--figure-name", name)
    assert (tmp_path / "drawn.pdf").read_bytes().startswith(b"%PDF")


def test_bad_input_is_one_line_and_writes_nothing(model, tmp_path):
    out = ("--out", tmp_path / "out")
    assert "no such file" in refuse("lexicon", model, "--words", tmp_path / "none.txt", *out)
    assert "head 9 does not exist" in refuse("lexicon", model, "--heads", "9", *out)
    assert call("lexicon", model, "--engine", "ray", *out).exit_code == 2  # a model runs on one machine
    assert "no such folder; make counts" in refuse("lexicon", model, "--counts", tmp_path / "none", *out)
    assert not (tmp_path / "out").exists()
