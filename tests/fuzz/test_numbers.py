"""Weights whose numbers their type can't hold: one line, never NaN, infinity or a softmax of rounding errors."""

from __future__ import annotations

import shutil
import warnings
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from safetensors.numpy import load_file, save_file

import detoklens as dl
from detoklens import Heatmap, Layers, Partners, Positions, Shape, Twins, demo
from detoklens.errors import CheckpointError
from detoklens.measures.contributions import PAPER, contributions
from detoklens.questions.study import Study
from detoklens.scores.layer import Layer
from detoklens.scores.softmax import softmax
from detoklens.tables.schema import Column, Schema
from detoklens.weights.scale import ScaleTable
from tests.command_line import refuse
from tests.layers import as_layer, random_first_layer, write_gpt2
from tests.measures.plain_contributions import plain_contributions

DOCUMENTS = [[1, 5, 3, 2, 7], [4, 4, 19]]


def test_a_norm_that_divides_by_nothing_is_refused():
    layer = random_first_layer(epsilon=0.0)
    tables = {
        name: (getattr(layer, name) * 1e-25).astype(np.float32) for name in ("token_embeddings", "position_embeddings")
    }
    small = ScaleTable(replace(layer, **tables))
    for ask in (small.bare_tokens, small.mean_over_positions, small.mean_over_tokens):
        with pytest.raises(
            CheckpointError, match=r"divide by the root of 0, which float32 can't hold exactly \(ε is 0\)"
        ):
            ask()
    wide = {name: values.astype(np.float64) for name, values in tables.items()}
    assert (ScaleTable(replace(layer, **wide)).mean_over_positions() > 0).all()


@pytest.mark.parametrize("highest", [1e10, -1e10, np.inf, np.nan])
def test_scores_that_are_rounded_too_coarsely_are_refused(highest):
    scores = np.array([[highest, highest]], np.float32)
    said = "are as large as 1e.10, which float32 rounds too coarsely for a softmax"
    with pytest.raises(CheckpointError, match=said if np.isfinite(highest) else "scores overflow float32: the weights"):
        softmax(scores)


def test_scores_of_no_consequence_may_be_large():
    np.testing.assert_array_equal(softmax(np.array([[0, -1e10, -np.inf]], np.float32)), [[1, 0, 0]])
    np.testing.assert_array_equal(softmax(np.array([[1e10, 1e10]])), [[0.5, 0.5]])


LARGE = [1e6, 1e15, 1e25]


def with_large_scores(factor: float, dtype: str = "float32") -> Layer:
    layer = random_first_layer(dtype=dtype)
    return as_layer(replace(layer, query_weight=(layer.query_weight * factor).astype(dtype)))


@pytest.mark.parametrize("factor", LARGE)
@pytest.mark.filterwarnings("ignore:overflow encountered", "ignore:invalid value encountered")
def test_contributions_of_scores_that_are_rounded_too_coarsely_are_refused(factor):
    """Without the check some divergences were NaN, shown as undefined, and the others errors of rounding."""
    with pytest.raises(CheckpointError, match="float32"):
        contributions(with_large_scores(factor), DOCUMENTS)


def test_a_command_about_scores_that_overflow_writes_one_line(tmp_path):
    """numpy's warnings, which Python shows by default, came before it."""
    layer = random_first_layer(dtype="float32")
    model = write_gpt2(tmp_path / "model", replace(layer, query_weight=layer.query_weight * np.float32(1e37)))
    with warnings.catch_warnings(record=True) as shown:
        warnings.resetwarnings()
        assert "attention scores overflow float32" in refuse("explain", model, "--token-ids", "1,5,3,2")
    assert not shown


def test_contributions_of_large_scores_are_exact_in_float64():
    layer = with_large_scores(1e6, "float64")
    found, plain = contributions(layer, DOCUMENTS), plain_contributions(layer, DOCUMENTS, PAPER)
    for (head, query, term), values in plain.items():
        mean = np.mean([divergence for divergence, _ in values])
        assert found.mean[head, query, found.terms.index(term)] == pytest.approx(mean, rel=1e-9, abs=1e-3)


@pytest.mark.parametrize("question", [Shape(), Heatmap(tokens=5), Partners([3, 7], top=4), Positions()])
@pytest.mark.parametrize("factor", LARGE)
@pytest.mark.filterwarnings("ignore:overflow encountered", "ignore:invalid value encountered")
def test_questions_about_large_scores_answer_as_in_float64_or_refuse(question, factor):
    try:
        tables = Study(with_large_scores(factor)).ask(question).tables
    except CheckpointError:
        return
    exact = Study(with_large_scores(factor, "float64")).ask(question).tables
    for name, frame in tables.items():
        for column in frame.select(pl.selectors.float()).columns:
            values, expected = frame[column].to_numpy(), exact[name][column].to_numpy()
            np.testing.assert_allclose(values, expected, rtol=1e-3, atol=1e-4 * np.nanmax(np.abs(expected), initial=0))


def test_an_overflow_in_a_table_is_refused_and_an_undefined_number_is_null():
    schema = Schema("some", "?", Column("score", "a score", defined=True), Column("p", "a p"))
    for name, value, wrong in (
        ("score", np.inf, "infinite"),
        ("p", -np.inf, "infinite"),
        ("score", np.nan, "not a num"),
    ):
        with pytest.raises(CheckpointError, match=f"table some: {name} is {wrong}.* overflow their type"):
            schema.frame({"score": [0.0, 1.0], "p": [0.0, 1.0]} | {name: [0.0, value]})
    assert schema.frame({"score": [0.0, None], "p": [0.0, np.nan]}).rows() == [(0.0, 0.0), (None, None)]


@pytest.mark.parametrize("question", [Twins(pieces=[2], bootstrap=0), Layers(bootstrap=0)])
def test_a_block_that_overflows_has_no_ranks(tmp_path, question):
    """Without the check NaN has no smaller cosine, so every twin had rank 1."""
    folder = tmp_path / "model"
    shutil.copytree(demo.CHECKPOINT, folder)
    tensors = load_file(folder / "model.safetensors")
    (name,) = (each for each in tensors if each.endswith("h.0.mlp.c_proj.weight"))
    tensors[name] = np.full(tensors[name].shape, 3e38, np.float32)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(CheckpointError, match="the residual stream is not finite in float32"):
        dl.study(folder, workers=1).ask(question)
