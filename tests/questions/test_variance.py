"""Exceptional positions are found where they were put, and the parts of the switch add up."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detoklens.questions.study import Study
from detoklens.questions.variance import Variance
from detoklens.scores.layer import Layer
from detoklens.tables.rendering import text_table
from tests.layers import random_layer, sizes
from tests.measures.test_positions import plain_inverse, plain_terms
from tests.measures.test_scale_summary import plain_scales
from tests.measures.test_trained_range import partly_trained
from tests.planted import BIAS, planted_layer


def asked(layer: Layer, **parameters: Any) -> dict[str, pl.DataFrame]:
    return dict(Study(layer).ask(Variance(**parameters)).tables)


def test_a_large_first_and_a_small_last_position_stand_out() -> None:
    found = asked(planted_layer(n_positions=300, first_times=4.0, last_times=0.01))["position_variance"]
    assert found.filter("outlier")["position"].to_list() == [0, 299]


@given(sizes)
def test_variances_and_scales_are_those_of_the_vectors(size: dict) -> None:
    layer = random_layer(**size)
    found = asked(layer)["position_variance"]
    np.testing.assert_allclose(found["variance"], layer.weights.position_embeddings.var(axis=1), rtol=1e-9)
    np.testing.assert_allclose(found["scale"], plain_scales(layer).mean(axis=1), rtol=1e-9)


@given(sizes.filter(lambda size: size["n_positions"] > 1), st.sampled_from(["ratio-of-mean", "mean-of-ratio"]))
def test_the_parts_of_the_jump_add_up(size: dict, average: str) -> None:
    layer = random_layer(**size)
    inverse, (scores, _) = plain_inverse(layer, average), plain_terms(layer)
    found = asked(layer, average=average)["switch"]
    divided = (scores * inverse)[:, :11]
    close = {"rtol": 1e-7, "atol": 1e-9 * np.abs(divided).max()}
    np.testing.assert_allclose(found["jump"], divided[:, 0] - divided[:, 1:].mean(axis=1), **close)
    np.testing.assert_allclose(found["by_scale"] + found["by_score"], found["jump"], **close)
    np.testing.assert_allclose(found["first"] - found["next"], found["jump"], **close)
    np.testing.assert_allclose(
        found["first_without_norm"] - found["next_without_norm"], found["jump_without_norm"], rtol=1e-7, atol=1e-9
    )


def test_the_planted_switch_lifts_position_0() -> None:
    """Tᵖ × σ is negative there; a large σ takes it towards 0."""
    found = asked(planted_layer(steepness=3.0, first_times=6.0))["switch"]
    assert found["first_without_norm"].to_list() == pytest.approx([-BIAS * 1.5] * 3)
    assert (found["jump"] > 0).all()
    assert (found["jump_without_norm"] < 0).all()
    assert (found["scale_share"] > 1).all()


@pytest.mark.parametrize("n_positions", [1, 2, 3, 4])
def test_tiny_models_are_answered(n_positions: int) -> None:
    found = asked(random_layer(n_heads=1, d_head=3, n_positions=n_positions))
    assert len(found["position_variance"]) == n_positions
    assert (found["undertrained"]["undertrained"].null_count() == 1) == (n_positions < 3)
    assert (found["switch"]["jump"].null_count() == 1) == (n_positions == 1)


def test_without_any_bias_there_is_no_jump() -> None:
    layer = random_layer()
    layer.weights.query_bias[:] = 0
    layer.weights.norm_bias[:] = 0
    found = asked(layer)["switch"]
    assert found["jump"].to_list() == [0.0] * 3
    assert found["scale_share"].null_count() == 3


def test_the_last_five_queries_are_in_the_table() -> None:
    layer = random_layer(n_positions=9)
    found = asked(layer)["last_queries"]
    assert found["query_position"].unique().to_list() == [4, 5, 6, 7, 8]
    row = found.filter((pl.col("head") == 2) & (pl.col("query_position") == 7))["comparison"]
    np.testing.assert_allclose(row, plain_terms(layer)[1][2, 7, :8], rtol=1e-9)


ALL_TRAINED = pl.DataFrame({"positions": [10], "trained": [10]})


def variances(outliers: list[int], number: int = 10) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "position": range(number),
            "variance": [4.0] + [1.0] * (number - 1),
            "outlier": [place in outliers for place in range(number)],
        }
    )


@pytest.mark.parametrize(
    ("outliers", "expected"),
    [
        ([], "No position embedding is a variance outlier; position 0 has 4.0 times the median variance."),
        ([0], "One position embedding is a variance outlier (0); "),
        ([0, 9], "2 position embeddings are variance outliers (0 and 9); "),
        (list(range(8)), "(0, 1, 2, 3, 4, 5 and 2 more)"),
    ],
)
def test_odd_positions_are_counted_and_named(outliers: list[int], expected: str) -> None:
    assert expected in Variance().summarize({"position_variance": variances(outliers), "trained_range": ALL_TRAINED})


def test_no_ratio_is_said_of_variances_that_are_zero() -> None:
    nothing = variances([]).with_columns(variance=0.0)
    said = Variance().summarize({"position_variance": nothing, "trained_range": ALL_TRAINED})
    assert said == "No position embedding is a variance outlier."


def test_compared_models_are_told_by_how_many_positions_depart() -> None:
    both = {"early": {"position_variance": variances([], 7)}, "late": {"position_variance": variances([0, 3])}}
    assert Variance().summarize_comparison(both) == (
        "Variance outliers among position embeddings: 0 of 7 in early and 2 of 10 in late."
    )


def test_untrained_positions_are_said_and_nothing_is_told_of_the_last() -> None:
    """Rows 100 to 299 are as drawn: the last one departs from nothing."""
    answer = Study(partly_trained(100, 300)).ask(Variance())
    said = "Only the first 100 of 300 positions are trained: later ones have variance 0.0004 (trained 0.0016, "
    assert answer.sentence.startswith(said + "initializer 0.0004) and neighbour correlation ")
    assert answer.tables["trained_range"].select("positions", "trained").rows() == [(300, 100)]
    assert answer.tables["undertrained"]["undertrained"].to_list() == [None] * 4
    assert not answer.tables["position_variance"]["outlier"].any(), "where training ends no row is odd"
    assert answer.sentence.endswith(" position 0 has 0.9 times the median variance.")


def test_of_a_table_that_is_trained_throughout_no_range_is_said() -> None:
    answer = Study(partly_trained(300, 300)).ask(Variance())
    assert "trained" not in answer.sentence
    assert answer.tables["trained_range"]["untrained_variance"].to_list() == [None]
    assert answer.tables["undertrained"]["undertrained"].null_count() == 0


def test_the_table_for_eyes_has_both_ends_and_the_outliers() -> None:
    layer = planted_layer(n_positions=300, first_times=4.0, last_times=0.01)
    layer.weights.position_embeddings[150] *= 3
    positions, switch, last = Variance().views(asked(layer))
    assert positions.frame["position"].to_list() == [*range(10), 150, *range(290, 300)]
    assert switch.frame.columns[:2] == ["head", "first"]
    assert "undertrained" in last.frame.columns


def test_three_tables_for_eyes_fit_80_columns() -> None:
    tables = asked(random_layer(n_positions=20))
    extreme = {name: frame.with_columns(pl.col(pl.Float64) * -1.2345678e-11) for name, frame in tables.items()}
    for view in Variance().views(extreme):
        shown = text_table(view.frame, view.title, 80)
        assert " more columns" not in shown
        assert max(map(len, shown.splitlines())) <= 80
