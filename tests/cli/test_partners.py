"""`detoklens partners` as a user meets it."""

from __future__ import annotations

import json

import polars as pl
import pytest

from detoklens.tables.files import MARK, read_stored
from tests.command_line import call, refuse, run
from tests.layers import random_first_layer, write_gpt2
from tests.spelled import write_spelled


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_spelled(tmp_path_factory.mktemp("spelled"))


def test_partners_prints_the_columns_and_writes_the_same_table(model, tmp_path):
    result = run("partners", model, " century", "--heads", "0,2", "--top", "3", "--format", "json", "--out", tmp_path)
    printed = json.loads(result.stdout)["rows"]
    assert list(printed[0]) == [
        "head",
        "query_token_id",
        "query_token",
        "rank",
        "key_token_id",
        "key_token",
        "score",
        "joined",
    ]
    assert [(row["head"], row["rank"]) for row in printed] == [(0, 1), (0, 2), (0, 3), (2, 1), (2, 2), (2, 3)]
    written = pl.read_parquet(tmp_path / "partners.parquet")
    assert written["key_token_id"].to_list() == [row["key_token_id"] for row in printed]
    provenance = json.loads(read_stored(tmp_path / "partners.parquet").metadata[MARK])
    assert provenance["command"] == "partners"
    assert provenance["options"]["heads"] == [0, 2]
    assert len(provenance["model_fingerprint"]) == 64


def test_text_and_id_name_the_same_token(model):
    by_text = run("partners", model, " century", "--format", "csv").stdout
    token_id = by_text.splitlines()[1].split(",")[1]
    assert run("partners", model, "--token-id", token_id, "--format", "csv").stdout == by_text


def test_a_model_without_tokenizer_is_asked_by_id(tmp_path):
    write_gpt2(tmp_path, random_first_layer(dtype="float32"))
    rows = json.loads(run("partners", tmp_path, "--token-id", "5", "--top", "1", "--format", "json").stdout)["rows"]
    assert [row["query_token_id"] for row in rows] == [5, 5, 5]
    assert refuse("partners", tmp_path, "word").startswith(f"detoklens: {tmp_path} has no tokenizer; pass token ids")


def test_bad_input_is_one_line_and_writes_nothing(model, tmp_path):
    out = ("--out", tmp_path / "out")
    assert "' sapiens' is 2 tokens: " in refuse("partners", model, " sapiens", *out)
    assert "token id 9999 does not exist" in refuse("partners", model, "--token-id", "9999", *out)
    assert "head 3 does not exist; heads go from 0 to 2" in refuse("partners", model, "a", "--heads", "3", *out)
    assert "no query token was given" in refuse("partners", model, *out)
    assert "no such folder" in refuse("partners", model, "a", "--counts", tmp_path / "none", *out)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("place", ["a file", "a file/below"])
def test_an_out_that_is_no_folder_is_one_line(model, tmp_path, place):
    (tmp_path / "a file").write_text("kept")
    assert "choose a folder" in refuse("partners", model, "a", "--out", tmp_path / place)
    assert (tmp_path / "a file").read_text() == "kept"


def test_a_table_of_someone_else_is_not_overwritten(model, tmp_path):
    (tmp_path / "partners.parquet").write_text("theirs")
    assert "was not written by detoklens" in refuse("partners", model, "a", "--out", tmp_path)
    assert (tmp_path / "partners.parquet").read_text() == "theirs"


@pytest.mark.parametrize("heads", ["2-0", "0-99999999999", "", "-1", "a", "0,", "9" * 5000])
def test_lists_of_heads_that_make_no_sense_are_a_usage_error(model, heads):
    result = call("partners", model, "a", "--heads", heads)
    assert result.exit_code == 2
    assert "write e.g." in result.stderr


def test_bytes_that_are_no_text_are_one_line(model):
    assert "is not valid text at character 0" in refuse("partners", model, "\udcff")


def test_a_figure_that_can_not_be_drawn_is_refused_before_any_work(model, tmp_path):
    drawn = ("partners", model, "a", "--out", tmp_path / "out", "--figure")
    assert "a figure is .svg, .pdf or .png" in refuse(*drawn, "x.gif")
    assert "figure width" in refuse(*drawn, "x.svg", "--width", "99")
    assert not (tmp_path / "out").exists()


def test_a_note_names_the_option_of_the_command_line() -> None:
    result = call("partners", "demo", "ion", "--heads", "1", "--top", "1")
    assert "tokens that training barely changed" in result.stderr
    assert "(--all-tokens includes them;" in result.stderr
