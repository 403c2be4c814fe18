"""`detoklens heatmap` as a user meets it."""

from __future__ import annotations

import json

import polars as pl
import pytest

from tests.command_line import call, refuse, run
from tests.layers import random_first_layer, write_gpt2


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_gpt2(tmp_path_factory.mktemp("model"), random_first_layer(dtype="float32"))


def test_two_rows_a_head_are_printed_and_all_scores_written(model, tmp_path):
    rows = json.loads(run("heatmap", model, "--tokens", "9", "--format", "json", "--out", tmp_path).stdout)["rows"]
    assert [(row["head"], row["layer_norm"]) for row in rows] == [(h, n) for h in range(3) for n in (True, False)]
    assert len(pl.read_parquet(tmp_path / "heatmap.parquet")) == 3 * 2 * 9 * 9
    assert len(pl.read_parquet(tmp_path / "heatmap_tokens.parquet")) == 9
    assert len(pl.read_parquet(tmp_path / "heatmap_by_head.parquet")) == 6


def test_another_seed_draws_other_tokens(model):
    asked = ("heatmap", model, "--tokens", "9", "--table", "heatmap_tokens", "--format", "csv")
    first, again, other = (run(*asked, "--seed", seed).stdout for seed in (1, 1, 2))
    assert first == again != other


def test_a_figure_is_drawn(model, tmp_path):
    run("heatmap", model, "--tokens", "9", "--heads", "1", "--figure", tmp_path / "map.png")
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")


def test_a_small_vocabulary_is_drawn_whole(model):
    result = run("heatmap", model, "--tokens", "24", "--table", "heatmap_tokens", "--format", "json")
    assert len(json.loads(result.stdout)["rows"]) == 23
    assert "the vocabulary has 23 tokens, fewer than 24; all are compared" in result.stderr


def test_bad_input_is_one_line(model, tmp_path):
    assert call("heatmap", model, "--tokens", "1").exit_code == 2
    assert "head 3 does not exist" in refuse("heatmap", model, "--heads", "2-3", "--out", tmp_path)
    assert not list(tmp_path.iterdir())
