"""Exceptional positions are found where they were put, and a last position departs where it was left untrained."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detoklens.measures.positions import PositionScores
from detoklens.measures.variance import (
    departure_of_last,
    deviations,
    last_rows,
    outliers,
    switch,
    undertrained,
    value_norms,
)
from detoklens.scores.layer import Layer
from tests.layers import random_layer, sizes
from tests.measures.test_positions import plain_terms
from tests.planted import planted_layer


def scores_of(layer: Layer, inverse: np.ndarray | None = None) -> PositionScores:
    return PositionScores.of(layer, np.ones(layer.n_positions) if inverse is None else inverse)


def departure(layer: Layer) -> dict[str, np.ndarray]:
    return departure_of_last(last_rows(scores_of(layer)))


def judged(found: dict[str, np.ndarray]) -> list[bool | None]:
    return undertrained(found["departure"], found["usual_departure"])


def test_nothing_stands_out_where_all_are_nearly_equal() -> None:
    values = 1 + 1e-9 * np.random.default_rng(0).normal(size=200)
    assert not outliers(values).any()
    assert not outliers(np.ones(200)).any()
    assert np.isnan(deviations(np.ones(200))).all()
    assert not outliers(np.zeros(7)).any()


def test_a_row_of_zeros_stands_out() -> None:
    values = np.exp(0.1 * np.random.default_rng(0).normal(size=100))
    values[40] = 0
    assert np.flatnonzero(outliers(values)).tolist() == [40]


def test_a_drift_is_no_exception_and_a_step_out_of_it_is() -> None:
    noise = 0.02 * np.random.default_rng(1).normal(size=200)
    values = np.exp(np.linspace(-2, 2, 200) + noise)
    assert not outliers(values).any()
    values[150] = np.median(values)
    assert np.flatnonzero(outliers(values)).tolist() == [150]


def test_deviations_compare_with_the_ten_nearest() -> None:
    values = np.exp(np.random.default_rng(2).normal(size=40))
    logs = np.log(values)
    nearest = [[k for k in range(11) if k != 3], [k for k in range(15, 26) if k != 20], list(range(29, 39))]
    expected = np.array([logs[j] - np.median(logs[near]) for j, near in zip((3, 20, 39), nearest, strict=True)])
    found = deviations(values)[[3, 20, 39]]
    np.testing.assert_allclose(found / found[0], expected / expected[0], rtol=1e-9)
    assert np.median(np.abs(deviations(values))) == pytest.approx(0.6745)


@given(st.integers(0, 2**32 - 1), st.floats(1e-6, 1e6))
def test_deviations_do_not_depend_on_the_unit(seed: int, unit: float) -> None:
    values = np.exp(np.random.default_rng(seed).normal(size=31))
    np.testing.assert_allclose(deviations(values * unit), deviations(values), rtol=1e-6, atol=1e-9)


def test_an_untrained_last_position_is_told() -> None:
    layer = planted_layer(period=80.0, last_times=0.01)
    found = departure(layer)
    assert judged(found) == [True] * 3
    assert found["departure"].tolist() == pytest.approx([1.0] * 3, abs=0.05)
    assert (found["size"] < 0.02 * found["usual_size"]).all()


def test_a_trained_last_position_is_not() -> None:
    assert judged(departure(planted_layer(period=80.0))) == [False] * 3


@given(st.integers(0, 2**32 - 1))
def test_in_a_random_layer_no_position_is_special(seed: int) -> None:
    found = departure(random_layer(n_positions=60, d_head=16, seed=seed))
    assert judged(found) == [False] * 3


def test_a_last_position_is_not_told_where_the_others_disagree() -> None:
    """In this random layer the last row departs three times as far as any other, and every other is far off too."""
    found = departure(random_layer(n_positions=60, seed=200))
    assert found["departure"][2] > 3 * found["usual_departure"][2] > 1.5
    assert judged(found)[2] is False


@given(sizes.filter(lambda size: size["n_positions"] > 3))
def test_departures_are_the_plain_formula(size: dict) -> None:
    layer = random_layer(**size)
    compared = plain_terms(layer)[1]
    queries = list(range(max(0, layer.n_positions - 5), layer.n_positions))
    found = departure(layer)
    for head in range(layer.n_heads):
        rows = [compared[head, query, : queries[0] + 1] for query in queries]
        mean = np.mean(rows[:-1], axis=0)
        usual = max(
            np.linalg.norm(rows[place] - other) / np.linalg.norm(other)
            for place in range(len(rows) - 1)
            for other in [np.mean([row for k, row in enumerate(rows[:-1]) if k != place], axis=0)]
        )
        assert found["departure"][head] == pytest.approx(np.linalg.norm(rows[-1] - mean) / np.linalg.norm(mean))
        assert found["usual_departure"][head] == pytest.approx(usual)


def test_a_jump_that_only_the_scale_makes_is_the_scales() -> None:
    layer = random_layer(n_positions=12)
    layer.weights.position_embeddings[1:] = layer.weights.position_embeddings[0]
    inverse = np.full(12, 2.0)
    inverse[0] = 0.5
    found = switch(scores_of(layer, inverse))
    assert found["scale_share"].tolist() == pytest.approx([1.0] * 3, abs=1e-9)
    assert found["by_score"].tolist() == pytest.approx([0.0] * 3, abs=1e-9)
    even = switch(scores_of(layer, np.full(12, 2.0)))
    assert even["by_scale"].tolist() == pytest.approx([0.0] * 3, abs=1e-9)


def test_the_rows_are_those_of_the_last_five_queries() -> None:
    layer = random_layer(n_positions=9)
    found = last_rows(scores_of(layer))
    assert list(found) == [4, 5, 6, 7, 8]
    np.testing.assert_allclose(found[7][2], plain_terms(layer)[1][2, 7, :8], rtol=1e-9)


@given(sizes)
def test_value_norms_are_means_over_the_vocabulary(size: dict) -> None:
    layer = random_layer(**size)
    found = value_norms(layer)
    folded, tokens = layer.folded, np.arange(layer.vocab_size)
    assert found.shape == (layer.n_heads, min(11, layer.n_positions))
    for place in range(found.shape[1]):
        both = layer.weights.token_embeddings + layer.weights.position_embeddings[place]
        divided = both / layer.scales.at(np.full(layer.vocab_size, place), tokens)[:, None]
        values = np.einsum("td,hdk->htk", divided, folded.value_weight) + folded.value_bias[:, None]
        expected = np.linalg.norm(values, axis=2).mean(axis=1)
        np.testing.assert_allclose(found[:, place], expected, rtol=1e-6, atol=1e-9)
