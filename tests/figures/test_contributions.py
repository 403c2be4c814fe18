"""What each term contributes, drawn: over query positions, as shares of a head, over checkpoints."""

from __future__ import annotations

import numpy as np
import polars as pl
from matplotlib.axes import Axes

from detoklens.figures.labels import QUERY
from detoklens.questions.contributions import Contributions, terms_in_order
from tests.figures.synthetic import TERMS, tables

DRAWN = tables(3)
FIGURES = {spec.name: spec for spec in Contributions.figures}
COMPARED = {spec.name: spec for spec in Contributions.compared_figures}


def curve(axes: Axes, index: int = -1) -> np.ndarray:
    return np.array(axes.lines[index].get_xydata())


def test_the_axis_says_who_attends() -> None:
    assert FIGURES["contributions"].draw(DRAWN).get_supxlabel() == f"{QUERY}, position"
    assert QUERY == "query (attends)"


def test_terms_come_in_the_papers_order_and_others_after_them() -> None:
    assert terms_in_order(pl.Series(["p", "zz", "ee", "p"])) == ["ee", "p", "zz"]


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


def test_the_legend_shows_markers_where_a_single_position_is_drawn_as_points() -> None:
    rows = DRAWN["contributions"].filter(query_position=3)
    (legend,) = FIGURES["contributions"].draw({"contributions": rows}).legends
    shown = [entry.get_marker() for entry in legend.get_lines()]
    assert shown == [
        axis_line.get_marker() for axis_line in FIGURES["contributions"].draw({"contributions": rows}).axes[0].lines
    ]


def test_shares_of_the_terms_fill_the_bar_in_a_fixed_order() -> None:
    figure = FIGURES["contribution_shares"].draw(DRAWN)
    (axes,) = figure.axes
    bars = np.array([[bar.get_width() for bar in container] for container in axes.containers])
    for place, term in enumerate(["ee", "pp", "e", "p", "ep", "pe"]):
        np.testing.assert_allclose(bars[place], DRAWN["contributions_by_head"].filter(term=term)["share"])
    starts = [[bar.get_x() for bar in container] for container in axes.containers]
    np.testing.assert_allclose(starts[1:], bars.cumsum(axis=0)[:-1])
    np.testing.assert_allclose(bars.sum(axis=0), 1)
    assert len({container[0].get_hatch() for container in axes.containers}) == len(TERMS)


def test_compared_terms_are_means_over_heads() -> None:
    later = tables(3, seed=1)["contributions_by_head"]
    both = {"contributions_by_head": {"one": DRAWN["contributions_by_head"], "two": later}}
    (axes,) = COMPARED["compare_contributions"].draw(both).axes
    means = [table.filter(term="ee")["share"].mean() for table in both["contributions_by_head"].values()]
    np.testing.assert_allclose(axes.lines[0].get_ydata(), means)
