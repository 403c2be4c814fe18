"""Planted lines and waves are found in a layer, random layers have neither, and the sentence says what is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detoklens.measures.positions import predicted_attention
from detoklens.questions.positions.question import Positions
from detoklens.questions.shape import SHAPE, Shape
from detoklens.questions.study import Study
from detoklens.scores.layer import Layer
from detoklens.tables.rendering import text_table
from tests.gpt2_stand_in import gpt2_positions
from tests.layers import as_layer, random_layer, sizes
from tests.measures.test_trained_range import partly_trained
from tests.planted import BIAS, planted_layer
from tests.questions.test_anatomy import first_layer


def shape(layer: Layer, query_positions: Sequence[int] | None = None) -> tuple[pl.DataFrame, pl.DataFrame]:
    tables = Study(layer).ask(Shape(query_positions)).tables
    return tables["shape"], tables["waves"]


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


def test_rounding_errors_of_a_straight_line_are_no_wave() -> None:
    """ALiBi's slopes in single precision leave a residual, but there is no control to test it against."""
    weights = first_layer("alibi", dtype="float32")
    layer = as_layer(replace(weights, alibi_slopes=np.float32([0.5, 0.25, 0.1, 0.02]), longest_text=2048))
    answer = Study(layer).ask(Shape([50, 1000]))
    assert answer.verdict is not None
    assert answer.verdict.value == "untestable"
    assert "the curve is a line" in answer.sentence


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


def table_of(**columns: object) -> pl.DataFrame:
    """The shape of three heads from one query position, all alike but for what is given."""
    usual = {"head": [0, 1, 2], "query_position": 90, "period": 30.0, "wave_share": [0.2, 0.9, 0.6]}
    usual |= {"wave_null": 0.72, "wave_p": 0.03, "sinusoidal": [False, True, False]}
    rows = pl.DataFrame(usual | columns, strict=False)
    others = [pl.lit(None).alias(name) for name in SHAPE.names if name not in rows.columns]
    return SHAPE.conform(rows.with_columns(others))


def test_the_sentence_names_heads_with_a_wave_and_the_control() -> None:
    found, said = Shape().verdict({"shape": table_of()}), Shape().summarize({"shape": table_of()})
    assert (found.value, found.heads) == ("yes", ("L0H1",))
    assert said == (
        "Tᵖᵖ is a wave in 1 of 3 heads (L0H1): from position 90, one wave explains 90 % (95 % of random walks: at most "
        "72 %; we require 50 %)."
    )
    some = Shape().summarize({"shape": table_of(sinusoidal=[None, True, False])})
    assert some.startswith("Tᵖᵖ is a wave in 1 of 3 heads (L0H1): 1 head untestable; from position 90, one wave ")
    assert len(some.split()) <= 40
    none = {"shape": table_of(sinusoidal=False)}
    assert Shape().verdict(none).value == "no"
    assert Shape().summarize(none) == (
        "Tᵖᵖ is a wave in 0 of 3 heads: from position 90, one wave explains 20 to 90 % (95 % of random walks: at most "
        "72 %; p = 0.03, we require 0.02)."
    )
    assert "random mean vectors" in Shape().summarize({"shape": table_of(by_offset=True)})
    assert len(said.split()) <= 40


def test_the_sentence_says_what_cannot_be_told() -> None:
    unseen, flat = {"shape": table_of(sinusoidal=None)}, {"shape": table_of(sinusoidal=None, period=None)}
    assert Shape().verdict(unseen).value == Shape().verdict(flat).value == "untestable"
    assert Shape().summarize(unseen).endswith("can't be tested: position 90 sees fewer than 48 keys.")
    long = {"shape": table_of(sinusoidal=None, period=180.4)}
    assert (
        Shape()
        .summarize(long)
        .endswith("position 90 sees fewer than 1.5 periods of every leading wave (the shortest period: 180).")
    )
    assert "without any wave" in Shape().summarize(flat)


def test_the_wave_is_judged_from_the_last_query_position() -> None:
    near = table_of(query_position=20, sinusoidal=None)
    assert "from position 90, " in Shape().summarize({"shape": pl.concat([near, table_of()])})


def test_compared_models_are_told_by_the_number_of_waves() -> None:
    labelled = {"early": {"shape": table_of(sinusoidal=None)}, "late": {"shape": table_of()}}
    assert Shape().summarize_comparison(labelled) == (
        "Heads whose position term is a wave: untestable in early and 1 of 3 heads in late."
    )


def test_gpt2_has_a_wave_in_all_heads_but_one_seen_from_position_1000(gpt2_positions_folder: Path) -> None:
    answer = Study(gpt2_positions(gpt2_positions_folder)).ask(Shape([500, 1000]))
    assert answer.verdict.heads == tuple(f"L0H{head}" for head in range(12) if head != 5)
    assert answer.sentence.startswith("Tᵖᵖ is a wave in 11 of 12 heads (L0H0, L0H1 and 9 more): ")
    assert ": 1 head untestable; from position 1000, one wave explains 86 to 98 % (" in answer.sentence
    assert answer.tables["shape"].filter(query_position=500)["sinusoidal"].null_count() == 12
    assert answer.tables["shape"].filter(query_position=1000).filter("linear")["head"].to_list() == [
        head for head in range(12) if head != 5
    ]


@pytest.mark.parametrize("seed", range(8))
def test_positions_that_drift_are_no_wave(seed: int) -> None:
    """A table of random walks: nearly every curve over it leans on one slow wave, and none is called one."""
    layer = random_layer(n_heads=4, n_positions=256, seed=seed)
    steps = np.random.default_rng(seed).normal(size=layer.weights.position_embeddings.shape)
    layer.weights.position_embeddings[:] = steps.cumsum(axis=0) / 16
    answer = Study(layer).ask(Shape([255]))
    assert answer.tables["shape"]["wave_share"].max() > 0.5
    assert answer.verdict.value != "yes"


def test_three_tables_fit_80_columns() -> None:
    """Extreme numbers too: every column of every view is there."""
    layer = planted_layer(n_positions=300)
    tables = Study(layer).ask(Shape([4, 150, 299])).tables
    extreme = tables["shape"].with_columns(slope=pl.lit(-1.23456e-11), alibi_slope=pl.lit(-6.54321e-12), period=299.9)
    for view in Shape().views({"shape": extreme, "waves": tables["waves"]}):
        shown = text_table(view.frame, view.title, 80)
        assert " more columns" not in shown
        assert max(map(len, shown.splitlines())) <= 80
    titles = [view.title for view in Shape().views(tables)]
    assert titles == ["line through Tᵖ", "leading wave of Tᵖᵖ", "softmax of Tᵖ + Tᵖᵖ"]
    assert len(Shape().views(tables)[0].frame) == 3, "the line does not depend on the query"


@pytest.mark.parametrize("question", [Shape(), Positions()])
def test_a_table_that_was_not_trained_to_its_end_is_told_and_looked_at_inside(question: Shape | Positions) -> None:
    cut = Study(partly_trained(100, 300)).ask(question)
    assert [note for note in cut.notes if note.startswith("only the first 100 of 300 positions are trained")]
    table = next(iter(cut.tables.values()))
    column = "query" if "query" in table.columns else "query_position"
    assert table[column].max() < 100
    assert Study(partly_trained(300, 300)).ask(question).notes == ()
