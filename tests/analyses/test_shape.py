"""Planted lines and waves are found in a layer, random layers have neither, and every class follows its rule."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detoklens.analyses import pull
from detoklens.analyses.line import best_line
from detoklens.analyses.positions import predicted_attention
from detoklens.analyses.shape import shape
from tests.analyses.test_positions import plain_inverse, plain_terms
from tests.layers import random_layer, sizes
from tests.planted import BIAS, TOTAL, planted_layer


def test_a_planted_line_and_a_planted_wave_are_found() -> None:
    layer = planted_layer(n_positions=300, steepness=3.0, period=37.0, wave=1.5)
    shapes, waves = shape(layer, [250])
    scale = layer.scales.mean_over_tokens()[0]
    assert shapes["slope"].to_list() == pytest.approx([BIAS * 3.0 / 300 / scale] * 3, rel=1e-9)
    assert shapes["alibi_slope"].to_list() == pytest.approx([BIAS * 3.0 / 300 / scale / 2] * 3, rel=1e-9)
    assert shapes["r_squared"].to_list() == pytest.approx([1.0] * 3, abs=1e-9)
    assert shapes["linear"].to_list() == [True] * 3
    assert shapes["period"].to_list() == pytest.approx([37.0] * 3, rel=1e-4)
    assert shapes["wave_share"].to_list() == pytest.approx([1.0] * 3, abs=1e-6)
    assert shapes["sinusoidal"].to_list() == [True] * 3
    leading = waves.filter(pl.col("rank") == 1)
    assert leading["amplitude"].to_list() == pytest.approx([1.5**2 / scale**2] * 3, rel=1e-4)


def test_exceptional_positions_do_not_bend_the_line() -> None:
    layer = planted_layer(first_times=9.0, last_times=0.01)
    shapes, _ = shape(layer, [299])
    assert shapes["r_squared"].min() == pytest.approx(1.0, abs=1e-9)
    assert shapes["period"].to_list() == pytest.approx([37.0] * 3, rel=1e-4)


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1))
def test_a_random_layer_is_neither_linear_nor_sinusoidal(seed: int) -> None:
    shapes, _ = shape(random_layer(n_heads=5, n_positions=128, seed=seed), [60, 127])
    assert shapes["linear"].to_list() == [False] * 10
    assert shapes["sinusoidal"].to_list() == [False] * 10


def test_no_bias_leaves_no_slope_and_no_r_squared() -> None:
    layer = random_layer(n_heads=1, n_positions=4)
    layer.weights.query_bias[:] = 0
    layer.weights.norm_bias[:] = 0
    shapes, waves = shape(layer)
    assert shapes["query_position"].to_list() == [0, 1, 3]
    assert shapes["slope"].to_list() == [0.0] * 3
    assert shapes["r_squared"].null_count() == shapes["linear"].null_count() == 3
    assert shapes["period"].null_count() == shapes["sinusoidal"].null_count() == 3
    assert shapes["on_previous"].null_count() == 1
    assert shapes["entropy"][0] == 0
    assert waves.is_empty()


@given(sizes)
def test_masses_are_those_of_the_prediction(size: dict) -> None:
    layer = random_layer(**size)
    query = layer.n_positions - 1
    (attention,) = predicted_attention(layer, [query])
    shapes, _ = shape(layer, [query])
    for count in (1, 5, 15):
        expected = [sum(row[max(0, query + 1 - count) :]) for row in attention]
        np.testing.assert_allclose(shapes[f"last_{count}"], expected, rtol=1e-9)
    np.testing.assert_allclose(shapes["on_first"], attention[:, 0], rtol=1e-9)
    assert (shapes["entropy"] <= np.log2(query + 1) + 1e-9).all()


@given(sizes.filter(lambda size: size["n_positions"] > 2))
def test_the_line_is_that_of_least_squares(size: dict) -> None:
    layer = random_layer(**size)
    values = plain_terms(layer)[0] * plain_inverse(layer, "ratio-of-mean")
    places = np.arange(layer.n_positions)
    line = best_line(values, places)
    for head, row in enumerate(values):
        slope, intercept = np.polyfit(places, row, 1)
        left = row - (slope * places + intercept)
        assert line.slope[head] == pytest.approx(slope, rel=1e-6, abs=1e-9 * np.abs(row).max())
        assert line.r_squared[head] == pytest.approx(1 - left.var() / row.var(), abs=1e-6)


def test_few_points_leave_linear_open() -> None:
    line = best_line(np.arange(15.0)[None], np.arange(15))
    assert line.r_squared[0] == pytest.approx(1)
    assert line.linear() == [None]
    assert best_line(np.arange(16.0)[None], np.arange(16)).linear() == [True]
    assert best_line(np.array([[3.0]]), np.array([0])).linear() == [None]


def attention_with(n_keys: int, **mass: float) -> np.ndarray:
    """Even attention but for some places, named from the end: k0 the query itself, k1 the one before it."""
    row = np.zeros(n_keys)
    for place, value in mass.items():
        row[n_keys - 1 - int(place[1:])] = value
    free = row == 0
    row[free] = (1 - row.sum()) / free.sum()
    return row[None]


@pytest.mark.parametrize(
    ("attention", "expected"),
    [
        (attention_with(100, k0=0.5), "self"),
        (attention_with(100, k0=0.49), "local"),
        (attention_with(100, k0=0.4), "broad"),
        (attention_with(100, k1=0.5), "previous token"),
        (attention_with(100, k99=0.5), "first"),
        (attention_with(100, k5=0.45, k0=0.45), "local"),
        (attention_with(100, k20=0.9), "broad"),
        (attention_with(16, k2=0.3, k3=0.3), "local"),
        (attention_with(16, k4=0.3, k5=0.3), "broad"),
        (np.full((1, 3), 1 / 3), "broad"),
        (np.ones((1, 1)), "self"),
    ],
)
def test_each_class_follows_its_rule(attention: np.ndarray, expected: str) -> None:
    assert pull.classes(attention) == [expected]


def test_entropy_of_even_attention_is_the_logarithm_of_its_keys() -> None:
    assert pull.entropy(np.full((1, 8), 1 / 8)).tolist() == [3.0]
    assert pull.entropy(np.array([[0.0, 1.0, 0.0]])).tolist() == [0.0]


def test_planted_total_leaves_room() -> None:
    """What the planted layer promises: every position's variance is the same."""
    variances = planted_layer().scales.position_variance
    np.testing.assert_allclose(variances, 2 * TOTAL / 12, rtol=1e-12)
