"""Exceptional positions are found where they were put, and the parts of the switch add up."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detoklens.analyses.outliers import deviations, outliers
from detoklens.analyses.switch import switch
from detoklens.analyses.undertrained import last_queries, undertrained
from detoklens.analyses.variance import variance
from tests.analyses.test_positions import plain_inverse, plain_terms
from tests.analyses.test_scale_summary import plain_scales
from tests.layers import random_layer, sizes
from tests.planted import BIAS, planted_layer


def test_a_large_first_and_a_small_last_position_stand_out() -> None:
    found = variance(planted_layer(n_positions=300, first_times=4.0, last_times=0.01)).position_variance
    assert found.filter("outlier")["position"].to_list() == [0, 299]


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


@given(sizes)
def test_variances_and_scales_are_those_of_the_vectors(size: dict) -> None:
    layer = random_layer(**size)
    found = variance(layer).position_variance
    np.testing.assert_allclose(found["variance"], layer.weights.position_embeddings.var(axis=1), rtol=1e-9)
    np.testing.assert_allclose(found["scale"], plain_scales(layer).mean(axis=1), rtol=1e-9)


@given(sizes.filter(lambda size: size["n_positions"] > 1), st.sampled_from(["ratio-of-mean", "mean-of-ratio"]))
def test_the_parts_of_the_jump_add_up(size: dict, average: str) -> None:
    layer = random_layer(**size)
    inverse, (scores, _) = plain_inverse(layer, average), plain_terms(layer)
    found = variance(layer, average=average).switch
    divided = (scores * inverse)[:, :11]
    close = {"rtol": 1e-7, "atol": 1e-9 * np.abs(divided).max()}
    np.testing.assert_allclose(found["jump"], divided[:, 0] - divided[:, 1:].mean(axis=1), **close)
    np.testing.assert_allclose(found["by_scale"] + found["by_score"], found["jump"], **close)
    np.testing.assert_allclose(found["first"] - found["next"], found["jump"], **close)
    np.testing.assert_allclose(
        found["first_without_norm"] - found["next_without_norm"], found["jump_without_norm"], rtol=1e-7, atol=1e-9
    )


def test_a_jump_that_only_the_scale_makes_is_the_scales() -> None:
    layer = random_layer(n_positions=12)
    layer.weights.position_embeddings[1:] = layer.weights.position_embeddings[0]
    inverse = np.full(12, 2.0)
    inverse[0] = 0.5
    found = switch(layer, inverse)
    assert found["scale_share"].to_list() == pytest.approx([1.0] * 3, abs=1e-9)
    assert found["by_score"].to_list() == pytest.approx([0.0] * 3, abs=1e-9)
    even = switch(layer, np.full(12, 2.0))
    assert even["by_scale"].to_list() == pytest.approx([0.0] * 3, abs=1e-9)


def test_the_planted_switch_lifts_position_0() -> None:
    """T^p × σ is negative there; a large σ takes it towards 0."""
    found = variance(planted_layer(steepness=3.0, first_times=6.0)).switch
    assert found["first_without_norm"].to_list() == pytest.approx([-BIAS * 1.5] * 3)
    assert (found["jump"] > 0).all()
    assert (found["jump_without_norm"] < 0).all()
    assert (found["scale_share"] > 1).all()


def test_an_untrained_last_position_is_told() -> None:
    layer = planted_layer(period=80.0, last_times=0.01)
    found = undertrained(layer)
    assert found["undertrained"].to_list() == [True] * 3
    assert found["departure"].to_list() == pytest.approx([1.0] * 3, abs=0.05)
    assert (found["size"] < 0.02 * found["usual_size"]).all()


def test_a_trained_last_position_is_not() -> None:
    assert undertrained(planted_layer(period=80.0))["undertrained"].to_list() == [False] * 3


@given(st.integers(0, 2**32 - 1))
def test_in_a_random_layer_no_position_is_special(seed: int) -> None:
    found = undertrained(random_layer(n_positions=60, d_head=16, seed=seed))
    assert found["undertrained"].to_list() == [False] * 3


def test_a_last_position_is_not_told_where_the_others_disagree() -> None:
    """In this random layer the last row departs three times as far as any other, and every other is far off too."""
    found = undertrained(random_layer(n_positions=60, seed=200)).row(2, named=True)
    assert found["departure"] > 3 * found["usual_departure"] > 1.5
    assert found["undertrained"] is False


@given(sizes.filter(lambda size: size["n_positions"] > 3))
def test_departures_are_the_plain_formula(size: dict) -> None:
    layer = random_layer(**size)
    compared = plain_terms(layer)[1]
    queries = list(range(max(0, layer.n_positions - 5), layer.n_positions))
    found = undertrained(layer)
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


def test_the_last_five_queries_are_in_the_table() -> None:
    layer = random_layer(n_positions=9)
    found = last_queries(layer)
    assert found["query_position"].unique().to_list() == [4, 5, 6, 7, 8]
    row = found.filter((pl.col("head") == 2) & (pl.col("query_position") == 7))["comparison"]
    np.testing.assert_allclose(row, plain_terms(layer)[1][2, 7, :8], rtol=1e-9)


@pytest.mark.parametrize("n_positions", [1, 2, 3, 4])
def test_tiny_models_are_answered(n_positions: int) -> None:
    found = variance(random_layer(n_heads=1, d_head=3, n_positions=n_positions))
    assert len(found.position_variance) == n_positions
    assert (found.undertrained["undertrained"].null_count() == 1) == (n_positions < 3)
    assert (found.switch["jump"].null_count() == 1) == (n_positions == 1)


def test_without_any_bias_there_is_no_jump() -> None:
    layer = random_layer()
    layer.weights.query_bias[:] = 0
    layer.weights.norm_bias[:] = 0
    found = variance(layer).switch
    assert found["jump"].to_list() == [0.0] * 3
    assert found["scale_share"].null_count() == 3
