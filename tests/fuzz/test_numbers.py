"""Weights whose numbers their type can't hold: one line, never NaN, infinity or a softmax of rounding errors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

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
    for ask in (small.bare_tokens, small.bare_positions, small.mean_over_positions, small.mean_over_tokens):
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


def test_an_infinite_number_in_a_table_is_refused_and_nan_is_null():
    schema = Schema("some", "?", (Column("score", "Float64", "a score"),))
    with pytest.raises(CheckpointError, match="table some: score is infinite"):
        schema.frame({"score": [0.0, np.inf]})
    assert schema.frame({"score": [0.0, np.nan]})["score"].to_list() == [0.0, None]
