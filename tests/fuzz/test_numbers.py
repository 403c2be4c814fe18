"""Weights whose numbers their type can't hold: one line, never NaN, infinity or a softmax of rounding errors."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import detoklens as dl
from detoklens import Layers, Twins, demo
from detoklens.errors import CheckpointError
from detoklens.scores.softmax import softmax
from detoklens.tables.schema import Column, Schema
from detoklens.weights.scale import ScaleTable
from tests.layers import random_first_layer


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
    with pytest.raises(CheckpointError, match="which float32 rounds too coarsely for a softmax"):
        softmax(scores)


def test_scores_of_no_consequence_may_be_large():
    np.testing.assert_array_equal(softmax(np.array([[0, -1e10, -np.inf]], np.float32)), [[1, 0, 0]])
    np.testing.assert_array_equal(softmax(np.array([[1e10, 1e10]])), [[0.5, 0.5]])


def test_an_overflow_in_a_table_is_refused_and_an_undefined_number_is_null():
    schema = Schema("some", "?", (Column("score", "Float64", "a score", defined=True), Column("p", "Float64", "a p")))
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
