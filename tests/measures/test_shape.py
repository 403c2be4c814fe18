"""Lines are those of least squares, and every class of attention follows its rule."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from scipy.special import softmax
from scipy.stats import spearmanr

from detoklens.measures.positions import PositionScores, predicted_attention
from detoklens.measures.shape import (
    best_line,
    classes,
    entropy,
    leading_waves,
    monotonicity,
    position_shape,
    sink_and_reach,
)
from tests.layers import random_layer, sizes
from tests.measures.test_positions import plain_inverse, plain_terms
from tests.measures.test_trained_range import layer_with, partly_trained
from tests.planted import TOTAL, planted_layer


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
    assert classes(attention) == [expected]


def test_entropy_of_even_attention_is_the_logarithm_of_its_keys() -> None:
    assert entropy(np.full((1, 8), 1 / 8)).tolist() == [3.0]
    assert entropy(np.array([[0.0, 1.0, 0.0]])).tolist() == [0.0]


def test_planted_total_leaves_room() -> None:
    """What the planted layer promises: every position's variance is the same."""
    variances = planted_layer().scales.position_variance
    np.testing.assert_allclose(variances, 2 * TOTAL / 12, rtol=1e-12)


def test_lines_and_waves_are_fitted_inside_the_trained_range() -> None:
    """As in a model that has no positions beyond it; what a query beyond it attends to is all of the keys."""
    whole = partly_trained(100, 300)
    cut = layer_with(whole.weights.position_embeddings[:100])
    found, expected = position_shape(whole, [80, 250]), position_shape(cut, [80, 99])
    np.testing.assert_allclose(found.line.slope, expected.line.slope, rtol=1e-9)
    np.testing.assert_allclose(found.line.r_squared, expected.line.r_squared, rtol=1e-9)
    periods = [[waves[0].period for waves in shape.queries[0].waves] for shape in (found, expected)]
    assert periods[0] == pytest.approx(periods[1])
    assert all(wave.period <= 100 for waves in found.queries[1].waves for wave in waves)
    assert found.queries[1].attention.shape == (4, 251)


@given(sizes.filter(lambda size: size["n_positions"] > 1))
def test_reach_and_sink_are_those_of_every_query(size: dict) -> None:
    layer = random_layer(**size)
    inverse, n_positions = plain_inverse(layer, "ratio-of-mean"), layer.n_positions
    found = sink_and_reach(PositionScores.of(layer, inverse), n_positions)
    usual = inverse.copy()
    usual[0] = inverse[1:11].mean()
    asserted, compared = plain_terms(layer)
    for query in range(n_positions):
        undivided = asserted[:, : query + 1] + compared[:, query, : query + 1] * inverse[query]
        for column, factor in (("on_first", inverse), ("on_first_usual_scale", usual)):
            expected = softmax(undivided * factor[: query + 1] * layer.attention_scale, axis=1)
            np.testing.assert_allclose(found[column][:, query], expected[:, 0], rtol=1e-9, atol=1e-12)
    (attention,) = predicted_attention(layer, [n_positions - 1])
    np.testing.assert_allclose(found["last_5"][:, -1], attention[:, -5:].sum(axis=1), rtol=1e-9)


@given(sizes)
def test_a_sink_with_the_usual_scale_loses_nothing(size: dict) -> None:
    layer = random_layer(**size)
    found = sink_and_reach(PositionScores.of(layer, np.full(layer.n_positions, 0.5)), layer.n_positions)
    np.testing.assert_array_equal(found["on_first_usual_scale"], found["on_first"])


def test_monotonicity_is_spearmans_and_the_share_of_steps_up() -> None:
    curves = np.random.default_rng(0).normal(size=(3, 40)).cumsum(axis=1)
    rank, steps = monotonicity(np.concatenate([curves, np.arange(40.0)[None], np.ones((1, 40))]))
    expected = [spearmanr(row, np.arange(40)).statistic for row in curves]
    assert rank[:4].tolist() == pytest.approx([*expected, 1.0])
    assert np.isnan(rank[4])
    assert steps.tolist() == pytest.approx([*(np.diff(row).__gt__(0).mean() for row in curves), 1.0, 0.0])


def test_the_effect_of_the_waves_is_what_removing_them_moves() -> None:
    """Where Tᵖᵖ is one planted wave, taking it away leaves the softmax of Tᵖ."""
    layer = planted_layer(period=25.0)
    query = layer.n_positions - 1
    (seen,) = position_shape(layer, [query]).queries
    (attention,) = predicted_attention(layer, [query])
    inverse = plain_inverse(layer, "ratio-of-mean")
    scores = PositionScores.of(layer, inverse)
    curve = scores.comparison(query) * inverse[query] * inverse
    part = leading_waves(curve, np.arange(query + 1))[1]
    total = scores.self_assertion * inverse + curve - part
    expected = np.abs(softmax(total * layer.attention_scale, axis=1) - attention).sum(axis=1) / 2
    np.testing.assert_allclose(seen.wave_effect, expected, rtol=1e-6, atol=1e-9)
    assert seen.wave_effect.max() > 0.01
