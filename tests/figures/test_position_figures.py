"""What the figures of positions, their shape and their variance hold: the tables' numbers, bands, gaps, labels."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import polars as pl
import polars.selectors as cs
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from detoklens.figures.labels import KEY, QUERY
from detoklens.figures.theme import REFERENCE
from detoklens.questions.positions.question import Positions
from detoklens.questions.shape import Shape
from detoklens.questions.variance import Variance
from tests.figures.synthetic import tables
from tests.figures.test_layout import SMALL, collisions

DRAWN = tables(3)
POSITIONS = DRAWN["positions"]
FIGURES = {spec.name: spec for kind in (Positions, Shape, Variance) for spec in kind.figures}
COMPARED = {spec.name: spec for spec in Positions.compared_figures}


def compared(name: str, drawn: dict[str, pl.DataFrame]) -> dict[str, dict[str, pl.DataFrame]]:
    """The tables of a comparison: one for each of several checkpoints."""
    return {table: {f"step {n}000 of a long run": drawn[table] for n in range(4)} for table in COMPARED[name].tables}


def curve(axes: Axes, index: int = -1) -> np.ndarray:
    return np.array(axes.lines[index].get_xydata())


def expected(frame: pl.DataFrame, x: str, y: str) -> np.ndarray:
    return frame.select(pl.col(x, y).cast(pl.Float64)).to_numpy()


def points(axes: Axes) -> list[list[float]]:
    """Values of each series of points, references left out."""
    return [list(line.get_xdata()) for line in axes.lines if line.get_label() != REFERENCE]


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


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
def test_each_query_has_its_own_column_with_the_extreme_scales(name: str, quantity: str) -> None:
    figure = FIGURES[name].draw(DRAWN, heads=[2, 0], extremes="key")
    queries = sorted(POSITIONS.filter(quantity=quantity)["query_position"].unique())
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == [f"L0H{head}, query {query}" for head in (2, 0) for query in queries]
    rows = POSITIONS.filter(quantity=quantity, head=2, query_position=queries[1])
    for place, column in enumerate(("at_largest_scale", "at_smallest_scale", "mean")):
        if quantity != "attention":  # the made-up attention has no extremes
            np.testing.assert_array_equal(curve(figure.axes[1], place), expected(rows, "key_position", column))
    bands = [] if quantity == "attention" else ["band of pairs of tokens"]
    assert legend(figure) == ["mean σ", "largest σ of the key", "smallest σ of the key", *bands]
    assert len(FIGURES[name].draw(DRAWN, heads=[1], queries=[32]).axes) == 1


@pytest.mark.parametrize(("extremes", "shown"), [("key", "at the keys"), ("query", "at the query")])
def test_the_convention_of_extreme_scales_is_named(extremes: str, shown: str) -> None:
    specs = {spec.name: spec for spec in Positions(extremes=extremes).specs()}
    assert f"the smallest σ {shown}" in specs["position_sum"].caption
    assert f"largest σ of the {extremes}" in legend(specs["position_sum"].draw(DRAWN))


def test_reach_shows_near_mass_and_the_sink_with_and_without_its_scale() -> None:
    figure = FIGURES["reach"].draw(DRAWN, heads=[1])
    rows = DRAWN["reach"].filter(head=1)
    for place, column in enumerate(("last_15", "on_first", "on_first_usual_scale")):
        np.testing.assert_array_equal(curve(figure.axes[0], place), expected(rows, "query_position", column))
    rotary = DRAWN | {"reach": DRAWN["reach"].drop("on_first_usual_scale")}
    assert legend(FIGURES["reach"].draw(rotary)) == ["last 15 tokens", "position 0"]


def test_an_undefined_number_is_a_gap() -> None:
    holed = POSITIONS.with_columns(mean=pl.when(pl.col("key_position") != 5).then(pl.col("mean")))
    figure = FIGURES["position_sum"].draw({"positions": holed}, queries=[32])
    assert np.isnan(curve(figure.axes[0])[:, 1]).nonzero()[0].tolist() == [5]


def test_the_last_query_has_its_own_ink_and_odd_heads_are_named() -> None:
    drawn = DRAWN | {"undertrained": DRAWN["undertrained"].with_columns(undertrained=pl.col("head") == 1)}
    figure = FIGURES["last_positions"].draw(drawn)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["L0H0", "L0H1 (undertrained)", "L0H2"]
    for axes in figure.axes:
        assert len(axes.lines) == 5
        assert len({line.get_color() for line in axes.lines}) == 5
        assert set(curve(axes)[:, 1]) == {0.02}


def test_a_head_of_which_nothing_can_be_told_is_not_shown_as_usual() -> None:
    unknown = pl.Series([True, None, False], dtype=pl.Boolean)
    drawn = DRAWN | {"undertrained": DRAWN["undertrained"].with_columns(undertrained=unknown)}
    figure = FIGURES["last_positions"].draw(drawn)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["L0H0 (undertrained)", "L0H1 (untestable)", "L0H2"]


def test_variances_of_all_first_and_last_positions_with_outliers() -> None:
    figure = FIGURES["position_variance"].draw(DRAWN)
    variance = DRAWN["position_variance"]["variance"].to_numpy()
    everything, first, last = figure.axes
    np.testing.assert_array_equal(curve(everything, 0)[:, 1], variance)
    np.testing.assert_array_equal(curve(first, 0)[:, 1], variance[:10])
    np.testing.assert_array_equal(curve(last, 0)[:, 1], variance[-10:])
    assert [curve(axes, 1)[:, 0].tolist() for axes in figure.axes] == [[0, 63], [0], [63]]


def test_shape_numbers_have_one_marker_a_query() -> None:
    figure = FIGURES["shape_numbers"].draw(DRAWN)
    assert legend(figure) == ["query 3", "query 32", "query 63"]
    slopes = [DRAWN["shape"].filter(query_position=query)["alibi_slope"].to_list() for query in (3, 32, 63)]
    assert points(figure.axes[0]) == slopes


def test_compared_positions_are_one_line_a_checkpoint_at_a_shared_query() -> None:
    short = tables(2, positions=33, seed=1)["positions"]
    both = {"positions": {"long": DRAWN["positions"], "short": short}}
    figure = COMPARED["compare_positions_attention"].draw(both, query=32)
    assert figure.get_supylabel() == "attention by position alone, query 32"
    assert [len(axes.lines) for axes in figure.axes] == [2, 2, 1]
    alone = COMPARED["compare_positions_p"].draw(both)
    assert [len(line.get_xdata()) for line in alone.axes[0].lines] == [64, 33]
    shared = replace(COMPARED["compare_positions_p"], options=(("quantity", "pp"),)).draw(both)
    assert shared.get_supylabel().endswith("query 32")


def test_the_switch_shows_position_0_beside_the_next_ten() -> None:
    figure = FIGURES["first_position"].draw(DRAWN)
    columns = [["next_without_norm", "first_without_norm"], ["next", "first"]]
    for axes, names in zip(figure.axes, columns, strict=True):
        assert points(axes) == [DRAWN["switch"][name].to_list() for name in names]


@pytest.mark.parametrize("name", [name for name, spec in (FIGURES | COMPARED).items() if spec.per_head])
def test_axes_say_who_is_attended_to(name: str) -> None:
    figure = FIGURES[name].draw(DRAWN) if name in FIGURES else COMPARED[name].draw(compared(name, DRAWN))
    assert (QUERY if name == "reach" else KEY) in figure.get_supxlabel()


@pytest.mark.parametrize("name", COMPARED)
def test_a_comparison_names_declared_tables_and_says_what_it_shows(name: str) -> None:
    spec = COMPARED[name]
    assert {*spec.tables, *spec.optional} <= {schema.name for schema in Positions.tables}
    assert spec.caption.endswith(".")
    assert spec.title
    assert spec.can_draw(compared(name, DRAWN))
    assert not spec.can_draw({})


@pytest.mark.parametrize("name", [name for name, spec in COMPARED.items() if spec.per_head])
def test_a_comparison_shows_the_asked_heads_in_the_asked_order(name: str) -> None:
    figure = COMPARED[name].draw(compared(name, DRAWN), heads=[2, 0])
    titles = [axes.get_title(loc="left").split()[0].strip(",") for axes in figure.axes if axes.axison]
    assert list(dict.fromkeys(titles)) == ["L0H2", "L0H0"]


@pytest.mark.parametrize("name", COMPARED)
def test_panels_of_a_comparison_without_any_number_say_so(name: str) -> None:
    nothing = {table: frame.with_columns(pl.when(False).then(cs.float())) for table, frame in DRAWN.items()}
    panels = [axes for axes in COMPARED[name].draw(compared(name, nothing)).axes if axes.axison]
    assert panels
    for axes in panels:
        assert [text.get_text() for text in axes.texts if text.get_text() == "no data"] == ["no data"]


@pytest.mark.parametrize("name", COMPARED)
def test_one_head_and_one_position_are_enough_for_a_comparison(name: str) -> None:
    drawn = tables(1, positions=1, vocabulary=1)
    assert COMPARED[name].draw(compared(name, drawn), width="column").get_size_inches()[0] == 3.3


@pytest.mark.parametrize("name", COMPARED)
def test_labels_of_one_head_stand_apart_in_a_comparison(name: str) -> None:
    assert collisions(COMPARED[name].draw(compared(name, SMALL), width="column")) == []


def test_compared_figures_are_titled_by_their_quantity() -> None:
    assert {spec.name: spec.title for spec in Positions.compared_figures} == {
        "compare_positions_p": "Positions in several checkpoints: position alone (Tᵖ)",
        "compare_positions_attention": "Positions in several checkpoints: attention by position alone",
        "compare_kernels": "Position kernels of several checkpoints",
    }


def test_drawing_does_not_touch_pyplot() -> None:
    code = (
        "import sys\nimport detoklens as dl\ndl.study('demo').ask(dl.Positions(heads=[1])).figure()\n"
        "print('matplotlib.figure' in sys.modules, 'matplotlib.pyplot' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "True False\n"
