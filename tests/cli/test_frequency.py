"""`detoklens frequency` as a user meets it."""

from __future__ import annotations

import json

import polars as pl
import pytest

from detoklens.tables.files import MARK, read_stored
from tests.command_line import call, refuse, run
from tests.spelled import write_counts, write_spelled


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_spelled(tmp_path_factory.mktemp("spelled"))


@pytest.fixture(scope="module")
def counts(model, tmp_path_factory):
    return write_counts(tmp_path_factory.mktemp("counts"), model)


@pytest.fixture(scope="module")
def other_counts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("other")
    return write_counts(folder, write_spelled(folder / "model", vocab_size=310))


def test_frequency_prints_heads_model_or_tokens_and_writes_all(model, counts, tmp_path):
    heads = json.loads(run("frequency", model, "--counts", counts, "--format", "json", "--out", tmp_path).stdout)[
        "rows"
    ]
    assert [row["head"] for row in heads] == [0, 1, 2]
    assert all(-1 <= row["spearman"] <= 1 for row in heads)
    [whole] = json.loads(run("frequency", model, "--counts", counts, "--by", "model", "--format", "json").stdout)[
        "rows"
    ]
    assert whole["spearman_tokens"] == whole["seen_tokens"] < whole["tokens"]
    tokens = json.loads(run("frequency", model, "--counts", counts, "--by", "token", "--format", "json").stdout)["rows"]
    assert len(tokens) == whole["tokens"]
    assert (
        json.loads(run("frequency", model, "--counts", counts, "--by", "head", "--format", "json").stdout)["rows"]
        == heads
    )
    names = ["embedding_variance", "frequency_by_head", "frequency_by_token", "self_assertion", "untrained"]
    assert sorted(path.stem for path in tmp_path.glob("*.parquet")) == names
    assert len(pl.read_parquet(tmp_path / "self_assertion.parquet")) == 3 * whole["tokens"]
    assert json.loads(read_stored(tmp_path / "self_assertion.parquet").metadata[MARK])["counts_fingerprint"]


def test_unseen_tokens_are_counted_as_asked(model, counts):
    asked = ("frequency", model, "--counts", counts, "--by", "model", "--format", "json", "--unseen")
    [included], [excluded] = (json.loads(run(*asked, choice).stdout)["rows"] for choice in ("include", "exclude"))
    assert included["spearman_tokens"] == included["tokens"] > excluded["spearman_tokens"]
    assert call(*asked, "some").exit_code == 2


def test_frequency_without_counts_says_what_is_missing(model):
    result = run("frequency", model, "--format", "json")
    assert "without counts, the correlations are empty" in result.stderr
    assert [row["spearman"] for row in json.loads(result.stdout)["rows"]] == [None, None, None]


@pytest.mark.parametrize("name", ["token_alone", "token_variance"])
def test_both_figures_are_drawn(model, counts, tmp_path, name):
    run("frequency", model, "--counts", counts, "--figure", tmp_path / "drawn.svg", "--figure-name", name)
    assert "<svg" in (tmp_path / "drawn.svg").read_text(encoding="utf-8")


def test_bad_input_is_one_line_and_writes_nothing(model, other_counts, tmp_path):
    out = ("--out", tmp_path / "out")
    for command in ("frequency", "lexicon"):
        assert "made with another tokenizer" in refuse(command, model, "--counts", other_counts, *out)
        assert "head 3 does not exist" in refuse(command, model, "--heads", "3", *out)
    assert "made with another tokenizer" in refuse("partners", model, "a", "--counts", other_counts, *out)
    assert not (tmp_path / "out").exists()
