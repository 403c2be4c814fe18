"""`detoklens frequency` and `detoklens heads` as a user meets them."""

from __future__ import annotations

import json

import polars as pl
import pytest

from detoklens.tables.files import read_provenance
from tests.command_line import refuse, run
from tests.spelled import LINES, write_spelled


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_spelled(tmp_path_factory.mktemp("spelled"))


@pytest.fixture(scope="module")
def counts(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("counts")
    (folder / "lines.txt").write_text("\n".join(LINES), encoding="utf-8")
    run("count", folder / "lines.txt", "--tokenizer", model, "--out", folder / "counts", "--workers", "1")
    return folder / "counts"


@pytest.fixture(scope="module")
def other_counts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("other")
    (folder / "lines.txt").write_text("\n".join(LINES), encoding="utf-8")
    other = write_spelled(folder / "model", vocab_size=310)
    run("count", folder / "lines.txt", "--tokenizer", other, "--out", folder / "counts", "--workers", "1")
    return folder / "counts"


def test_frequency_prints_heads_model_or_tokens_and_writes_all(model, counts, tmp_path):
    heads = json.loads(run("frequency", model, "--counts", counts, "--format", "json", "--out", tmp_path).stdout)
    assert [row["head"] for row in heads] == [0, 1, 2]
    assert all(-1 <= row["spearman"] <= 1 for row in heads)
    [whole] = json.loads(run("frequency", model, "--counts", counts, "--by", "model", "--format", "json").stdout)
    assert whole["spearman_tokens"] == whole["seen_tokens"] < whole["tokens"]
    tokens = json.loads(run("frequency", model, "--counts", counts, "--by", "token", "--format", "json").stdout)
    assert len(tokens) == whole["tokens"]
    names = ["embedding_variance", "frequency_by_head", "frequency_by_token", "self_assertion"]
    assert sorted(path.stem for path in tmp_path.iterdir()) == names
    assert len(pl.read_parquet(tmp_path / "self_assertion.parquet")) == 3 * whole["tokens"]
    assert json.loads(read_provenance(tmp_path / "self_assertion.parquet"))["counts_fingerprint"]


def test_unseen_tokens_are_counted_as_asked(model, counts):
    asked = ("frequency", model, "--counts", counts, "--by", "model", "--format", "json", "--unseen")
    [included], [excluded] = (json.loads(run(*asked, choice).stdout) for choice in ("include", "exclude"))
    assert included["spearman_tokens"] == included["tokens"] > excluded["spearman_tokens"]


def test_frequency_without_counts_says_what_is_missing(model):
    result = run("frequency", model, "--format", "json")
    assert "without --counts nothing can be correlated" in result.stderr
    assert [row["spearman"] for row in json.loads(result.stdout)] == [None, None, None]


def test_heads_are_sorted_and_written(model, counts, tmp_path):
    asked = ("heads", model, "--counts", counts, "--workers", "1", "--format", "json", "--out", tmp_path)
    rows = json.loads(run(*asked, "--sort", "effective_rank").stdout)
    ranks = [row["effective_rank"] for row in rows]
    assert ranks == sorted(ranks, reverse=True)
    assert all(row["auroc"] is not None for row in rows)
    assert [path.name for path in tmp_path.iterdir()] == ["heads.parquet"]
    assert [row["head"] for row in json.loads(run("heads", model, "--format", "json").stdout)] == [0, 1, 2]


def test_bad_input_is_one_line_and_writes_nothing(model, other_counts, tmp_path):
    out = ("--out", tmp_path / "out")
    assert "there is no column 'size' to sort by; the columns are head, auroc" in refuse(
        "heads", model, "--sort", "size", *out
    )
    for command in ("frequency", "heads", "lexicon"):
        assert "made with another tokenizer" in refuse(command, model, "--counts", other_counts, *out)
        assert "head 3 does not exist" in refuse(command, model, "--heads", "3", *out)
    assert "made with another tokenizer" in refuse("partners", model, "a", "--counts", other_counts, *out)
    assert not (tmp_path / "out").exists()
