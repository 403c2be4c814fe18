"""A planted trained range is read right, to the row; a table without one is not cut."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detoklens import demo
from detoklens.loading import load
from detoklens.measures.positions import BEYOND_CHANCE, neighbour_correlations, range_of_table, trained_range
from detoklens.scores.layer import Layer
from tests.layers import random_layer

DRAWN_WITH = 0.02
seeds = st.integers(0, 2**32 - 1)


def planted_table(trained: int, rows: int, features: int = 128, seed: int = 0, smooth: float = 0.9) -> np.ndarray:
    """Rows that drift from one to the next and vary more than drawn ones, then rows as drawn."""
    random = np.random.default_rng(seed)
    table = random.normal(size=(rows, features))
    for row in range(1, trained):
        table[row] = smooth * table[row - 1] + math.sqrt(1 - smooth**2) * table[row]
    table[:trained] *= 2
    return DRAWN_WITH * table


@given(st.integers(16, 200), st.integers(16, 200), st.sampled_from([64, 128, 768]), seeds)
def test_a_planted_range_is_found_to_the_row(trained: int, rest: int, features: int, seed: int) -> None:
    table = planted_table(trained, trained + rest, features, seed)
    found = range_of_table(table, DRAWN_WITH)
    assert (found.trained, found.positions) == (trained, trained + rest)
    of_a_median = BEYOND_CHANCE * math.sqrt(math.pi / 2 / rest)  # of `rest` rows, each with a deviation of 1
    below = 5 / (3 * features)  # the mean's degree of freedom, and the median of squares below their mean
    ratio = found.untrained_variance / found.initial_variance
    assert ratio == pytest.approx(1 - below, abs=of_a_median * math.sqrt(2 / features))
    assert found.untrained_correlation == pytest.approx(0, abs=of_a_median / math.sqrt(features))
    assert found.trained_correlation > 0.8


def test_the_fewest_rows_that_count_are_found_every_time() -> None:
    """The spread of sixteen drawn variances is itself uncertain by a fifth."""
    tables = (planted_table(16, 32, features=64, seed=seed) for seed in range(2000))
    assert {range_of_table(table, DRAWN_WITH).trained for table in tables} == {16}


def test_it_is_found_without_a_config_and_with_rows_of_zeros() -> None:
    table = planted_table(100, 300)
    assert range_of_table(table).trained == 100
    table[100:] = 0
    assert range_of_table(table, DRAWN_WITH).trained == 100
    table[100:] = 0.9 * planted_table(0, 200, seed=1)  # weight decay took some of it
    assert range_of_table(table, DRAWN_WITH).trained == 100


@given(st.integers(1, 300), st.sampled_from([2, 12, 64, 128]), seeds)
def test_a_table_as_drawn_is_not_cut(rows: int, features: int, seed: int) -> None:
    table = planted_table(0, rows, features, seed)
    assert range_of_table(table, DRAWN_WITH).is_whole
    assert range_of_table(table).is_whole


@given(st.integers(20, 300), st.sampled_from([64, 768]), seeds)
def test_a_trained_table_is_not_cut(rows: int, features: int, seed: int) -> None:
    found = range_of_table(planted_table(rows, rows, features, seed), DRAWN_WITH)
    assert found.is_whole
    assert math.isnan(found.untrained_variance)


def test_rows_that_are_unlike_but_not_as_drawn_are_trained() -> None:
    table = planted_table(100, 300)
    table[100:] *= 3
    assert range_of_table(table, DRAWN_WITH).is_whole
    uneven = planted_table(100, 300)
    uneven[100:] *= np.exp(np.linspace(-1, 0, 200))[:, None]
    assert range_of_table(uneven, DRAWN_WITH).is_whole


def test_a_last_odd_position_is_no_untrained_range() -> None:
    table = planted_table(300, 300)
    table[-1] = 1e-4
    assert range_of_table(table, DRAWN_WITH).is_whole


def test_rows_at_the_border_with_another_variance_are_trained() -> None:
    table = planted_table(100, 300, features=768)
    table[100:103] *= 2  # hardly alike, but no longer as drawn
    assert range_of_table(table, DRAWN_WITH).trained == 103


def test_correlations_are_those_of_numpy() -> None:
    table = np.random.default_rng(0).normal(size=(20, 9)) + 3
    expected = [np.corrcoef(table[row - 1], table[row])[0, 1] for row in range(1, 20)]
    np.testing.assert_allclose(neighbour_correlations(table), [0, *expected], atol=1e-12)


def partly_trained(trained: int, rows: int) -> Layer:
    """A layer of four heads whose config says what rows were drawn with."""
    return layer_with(planted_table(trained, rows), initializer_range=DRAWN_WITH)


def layer_with(table: np.ndarray, **config: object) -> Layer:
    layer = random_layer(n_heads=4, d_head=32)
    weights = replace(layer.weights, position_embeddings=table)
    return Layer(replace(layer.checkpoint, first_layer=weights, config=dict(config)))


def test_the_config_says_what_rows_were_drawn_with() -> None:
    table = planted_table(100, 300)
    for config in ({"initializer_range": 0.02}, {"init_std": 0.02}, {}, {"initializer_range": "x"}):
        assert trained_range(layer_with(table, **config)).trained == 100
    assert trained_range(layer_with(table, initializer_range=0.01)).is_whole  # so large is no row as drawn


@pytest.mark.parametrize("model", ["demo", *demo.snapshots()])
def test_the_demo_and_its_snapshots_are_not_cut(model: str) -> None:
    assert trained_range(load(model)).is_whole


def test_a_real_speech_decoder_is_not_cut(whisper_folder: Path) -> None:
    assert trained_range(load(whisper_folder)).is_whole
