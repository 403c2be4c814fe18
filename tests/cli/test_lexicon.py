"""`detoklens lexicon` as a user meets it."""

from __future__ import annotations

import json
from io import StringIO

import polars as pl
import pytest

from detoklens.tables.files import read_provenance
from tests.command_line import refuse, run
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
    assert sorted(path.name for path in out.iterdir()) == ["lexicon.parquet", "lexicon_by_head.parquet"]
    written = pl.read_parquet(out / "lexicon.parquet")
    assert len(written) == 90
    assert written["is_word"].null_count() == 0
    assert json.loads(read_provenance(out / "lexicon.parquet"))["options"]["top"] == 30


def test_a_table_for_eyes_is_short_and_says_so(model):
    result = run("lexicon", model, "--top", "50", "--heads", "1", "--workers", "1")
    assert len(result.stdout.splitlines()) < 30
    assert "has all 50" in result.stderr
    summary = run("lexicon", model, "--top", "50", "--by", "head", "--workers", "1", "--format", "json").stdout
    assert [row["pairs"] for row in json.loads(summary)] == [50, 50, 50]


def test_bad_input_is_one_line_and_writes_nothing(model, tmp_path):
    out = ("--out", tmp_path / "out")
    assert "no such file" in refuse("lexicon", model, "--words", tmp_path / "none.txt", *out)
    assert "head 9 does not exist" in refuse("lexicon", model, "--heads", "9", *out)
    assert "engine 'spark' is not known" in refuse("lexicon", model, "--engine", "spark", *out)
    assert "no such folder; make counts" in refuse("lexicon", model, "--counts", tmp_path / "none", *out)
    assert not (tmp_path / "out").exists()
