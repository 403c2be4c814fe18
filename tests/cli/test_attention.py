"""`detoklens attention` as a user meets it."""

from __future__ import annotations

import json

import polars as pl
import pytest

from detoklens.questions.attention import ATTENTION, ATTENTION_AGREEMENT
from tests.cli.text_model import write_documents, write_text_model
from tests.command_line import refuse, run


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_text_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    return write_documents(tmp_path_factory.mktemp("texts") / "texts.jsonl")


def ask(model, texts, *more):
    return run("attention", model, "--text", texts, "--workers", 1, *more)


def test_agreement_is_printed_and_both_tables_are_written(model, texts, tmp_path):
    result = ask(model, texts, "--query-positions", "4,20", "--format", "json", "--out", tmp_path)
    printed = json.loads(result.stdout)["rows"]
    assert list(printed[0]) == ATTENTION_AGREEMENT.without("measured_next", "predicted_next").names
    assert [(row["head"], row["query_position"]) for row in printed[:3]] == [(0, 4), (0, 20), (1, 4)]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "attention.csv",
        "attention.parquet",
        "attention_agreement.csv",
        "attention_agreement.parquet",
    ]
    keys = pl.read_parquet(tmp_path / "attention.parquet")
    assert keys.columns == [column.name for column in ATTENTION.columns]
    sums = keys.group_by("head", "query_position").agg(pl.col("mean", "predicted").sum())
    assert sums["mean"].to_list() == pytest.approx([1] * 6)
    assert sums["predicted"].to_list() == pytest.approx([1] * 6)
    assert (keys["low"] <= keys["high"]).all()
    assert "documents are too short for query position 20" in result.stderr
    assert "40 documents of 2 to 32 tokens (40 read)" in result.stderr


def test_keys_are_printed_when_asked_for(model, texts):
    result = ask(model, texts, "--by", "key", "--query-positions", "6", "--heads", "2", "--format", "csv")
    rows = [line.split(",")[:3] for line in result.stdout.splitlines()[1:]]
    assert rows == [["2", "6", str(key)] for key in range(7)]


def test_positions_adapt_to_the_models_length(model, texts):
    printed = json.loads(ask(model, texts, "--heads", "0", "--format", "json").stdout)["rows"]
    assert [row["query_position"] for row in printed] == [1, 15, 31]
    shorter = json.loads(ask(model, texts, "--heads", "0", "--length", "8", "--format", "json").stdout)["rows"]
    assert [row["query_position"] for row in shorter] == [0, 3, 7]


def test_a_wider_band_holds_a_narrower_one(model, texts):
    bands = []
    for share in ("0.5", "1"):
        out = ask(model, texts, "--by", "key", "--query-positions", "6", "--band", share, "--format", "json").stdout
        bands.append(pl.DataFrame(json.loads(out)["rows"]))
    assert (bands[1]["low"] <= bands[0]["low"]).all()
    assert (bands[1]["high"] >= bands[0]["high"]).all()
    assert (bands[1]["high"] > bands[0]["high"]).any()


def test_bad_questions_are_one_line(model, texts, tmp_path):
    def refusal(*more):
        line = refuse("attention", model, "--text", texts, "--out", tmp_path / "out", *more)
        assert not (tmp_path / "out").exists()
        return line

    assert "position 32 does not exist" in refusal("--query-positions", "32")
    assert "a band of 1.5 is not a share of documents" in refusal("--band", "1.5")
    assert "a band of nan is not a share of documents" in refusal("--band", "nan")
    assert "query position 9 is beyond documents truncated to 8 tokens" in refusal(
        "--length", "8", "--query-positions", 9
    )
    assert "a length of 33 exceeds the 32 positions" in refusal("--length", "33")
    assert "--text" in refuse("attention", model)


def test_help_has_an_example():
    assert "Example: detoklens attention gpt2" in run("attention", "--help").stdout
