"""What the artists of position figures hold: the tables' numbers, bands, gaps, labels."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from matplotlib.axes import Axes

from detoklens.figures import FIGURES
from detoklens.figures.wording import KEY, QUERY
from tests.figures.synthetic import tables

DRAWN = tables(3)
POSITIONS = DRAWN["positions"]


def curve(axes: Axes, index: int = -1) -> np.ndarray:
    return np.array(axes.lines[index].get_xydata())


def expected(frame: pl.DataFrame, x: str, y: str) -> np.ndarray:
    return frame.select(pl.col(x, y).cast(pl.Float64)).to_numpy()


def test_position_alone_shows_mean_and_band_with_and_without_layer_norm() -> None:
    figure = FIGURES["position_alone"].draw(DRAWN, heads=[2])
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == ["L0H2", "L0H2, no LayerNorm"]
    for axes, layer_norm in zip(figure.axes, (True, False), strict=True):
        rows = POSITIONS.filter(quantity="p", head=2, layer_norm=layer_norm)
        np.testing.assert_array_equal(curve(axes), expected(rows, "key_position", "mean"))
        outline = axes.collections[0].get_paths()[0].vertices
        assert outline[:, 1].min() == pytest.approx(min(rows["low"].min(), rows["high"].min()))
        assert outline[:, 1].max() == pytest.approx(max(rows["low"].max(), rows["high"].max()))


def test_position_alone_with_one_variant_or_too_many_heads() -> None:
    assert len(FIGURES["position_alone"].draw(DRAWN, layer_norm=False).axes) == 3
    assert len(FIGURES["position_alone"].draw(DRAWN, width="page").axes) == 6
    many = tables(9, positions=8)
    assert len(FIGURES["position_alone"].draw(many, width="column").axes) == 9


@pytest.mark.parametrize(
    ("name", "quantity"),
    [("position_comparison", "pp"), ("position_sum", "p+pp"), ("position_attention", "attention")],
)
def test_several_queries_are_one_line_each(name: str, quantity: str) -> None:
    figure = FIGURES[name].draw(DRAWN)
    queries = sorted(POSITIONS.filter(quantity=quantity)["query_position"].unique())
    for head, axes in enumerate(figure.axes):
        assert len(axes.lines) == len(queries) == 3
        for place, query in enumerate(queries):
            rows = POSITIONS.filter(quantity=quantity, head=head, query_position=query)
            np.testing.assert_array_equal(curve(axes, place), expected(rows, "key_position", "mean"))
        assert len({line.get_linestyle() + str(line._dash_pattern) for line in axes.lines}) == 3
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == [f"query {query}" for query in queries]


def test_one_query_is_shown_with_the_largest_and_smallest_scale() -> None:
    figure = FIGURES["position_comparison"].draw(DRAWN, heads=[1], queries=[32])
    rows = POSITIONS.filter(quantity="pp", head=1, query_position=32)
    for place, column in enumerate(("at_largest_scale", "at_smallest_scale", "mean")):
        np.testing.assert_array_equal(curve(figure.axes[0], place), expected(rows, "key_position", column))
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["query 32, mean σ", "largest σ", "smallest σ", "most pairs of tokens"]


def test_extreme_scales_are_shown_at_the_middle_query_unless_asked() -> None:
    spec = FIGURES["position_scales"]
    for figure, query in ((spec.draw(DRAWN, heads=[1]), 32), (spec.draw(DRAWN, heads=[1], query=3), 3)):
        rows = POSITIONS.filter(quantity="pp", head=1, query_position=query)
        assert [len(line.get_xdata()) for line in figure.axes[0].lines] == [query + 1] * 3
        np.testing.assert_array_equal(curve(figure.axes[0], 1), expected(rows, "key_position", "at_smallest_scale"))


def test_near_attention_shows_the_last_30_keys() -> None:
    figure = FIGURES["attention_near"].draw(DRAWN, heads=[0], query=63)
    assert curve(figure.axes[0], 0)[:, 0].tolist() == list(range(34, 64))


def test_an_undefined_number_is_a_gap() -> None:
    holed = POSITIONS.with_columns(mean=pl.when(pl.col("key_position") != 5).then(pl.col("mean")))
    figure = FIGURES["position_sum"].draw({"positions": holed}, queries=[32])
    assert np.isnan(curve(figure.axes[0])[:, 1]).nonzero()[0].tolist() == [5]


@pytest.mark.parametrize(
    ("name", "axis"),
    [
        ("position_alone", KEY),
        ("position_comparison", KEY),
        ("position_sum", KEY),
        ("position_attention", KEY),
        ("attention", KEY),
        ("attention_near", KEY),
        ("position_scales", KEY),
        ("last_positions", KEY),
        ("contributions", QUERY),
    ],
)
def test_axes_say_who_attends_and_who_is_attended_to(name: str, axis: str) -> None:
    figure = FIGURES[name].draw(DRAWN)
    assert axis in figure.get_supxlabel()
    assert (KEY, QUERY) == ("key (attended to)", "query (attends)")


def test_attention_is_drawn_beside_its_prediction() -> None:
    figure = FIGURES["attention"].draw(DRAWN, heads=[0], query=63)
    rows = DRAWN["attention"].filter(head=0, query_position=63)
    np.testing.assert_array_equal(curve(figure.axes[0], 0), expected(rows, "key_position", "mean"))
    np.testing.assert_array_equal(curve(figure.axes[0], 1), expected(rows, "key_position", "predicted"))
    assert figure.legends[0].get_texts()[0].get_text() == "on text, mean (query 63)"
    near = FIGURES["attention"].draw(DRAWN, heads=[0], query=63, last=5)
    assert curve(near.axes[0], 0)[:, 0].tolist() == [59, 60, 61, 62, 63]


def test_attention_is_shown_at_the_middle_query_unless_asked() -> None:
    figure = FIGURES["attention"].draw(DRAWN)
    assert figure.legends[0].get_texts()[0].get_text() == "on text, mean (query 32)"


def test_contributions_are_one_line_a_term_on_a_logarithmic_axis() -> None:
    noise = pl.when(pl.col("query_position") > 0).then(pl.col("kl")).otherwise(1e-17)
    rows = DRAWN["contributions"].with_columns(kl=pl.when(pl.col("query_position") == 9).then(0.0).otherwise(noise))
    figure = FIGURES["contributions"].draw({"contributions": rows})
    for head, axes in enumerate(figure.axes):
        assert axes.get_yscale() == "log"
        assert len(axes.lines) == 6
        drawn = curve(axes, 0)
        kl = rows.filter(head=head, term="ee").sort("query_position")["kl"].to_numpy()
        assert drawn[0, 0] == 3, "query 0 is left out"
        assert np.isnan(drawn[2, 1]), "zero has no place on the axis"
        np.testing.assert_array_equal(drawn[3:, 1], kl[4:])
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend[0] == "token and token (Tᵉᵉ)"
    assert len(legend) == 6


def test_the_last_query_has_its_own_ink_and_odd_heads_are_named() -> None:
    drawn = DRAWN | {"undertrained": DRAWN["undertrained"].with_columns(undertrained=pl.col("head") == 1)}
    figure = FIGURES["last_positions"].draw(drawn)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["L0H0", "L0H1 (odd)", "L0H2"]
    for axes in figure.axes:
        assert len(axes.lines) == 5
        assert len({line.get_color() for line in axes.lines}) == 5
        assert set(curve(axes)[:, 1]) == {0.02}


def test_variances_of_all_first_and_last_positions_with_outliers() -> None:
    figure = FIGURES["position_variance"].draw(DRAWN)
    variance = DRAWN["position_variance"]["variance"].to_numpy()
    everything, first, last = figure.axes
    np.testing.assert_array_equal(curve(everything, 0)[:, 1], variance)
    np.testing.assert_array_equal(curve(first, 0)[:, 1], variance[:10])
    np.testing.assert_array_equal(curve(last, 0)[:, 1], variance[-10:])
    assert [curve(axes, 1)[:, 0].tolist() for axes in figure.axes] == [[0, 63], [0], [63]]
