"""What the artists of figures about text hold: the tables' numbers, bands, gaps, labels."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from matplotlib.axes import Axes

from detoklens.figures.labels import KEY, QUERY
from tests.figures.specs import FIGURES
from tests.figures.synthetic import tables

DRAWN = tables(3)
POSITIONS = DRAWN["positions"]


def curve(axes: Axes, index: int = -1) -> np.ndarray:
    return np.array(axes.lines[index].get_xydata())


def expected(frame: pl.DataFrame, x: str, y: str) -> np.ndarray:
    return frame.select(pl.col(x, y).cast(pl.Float64)).to_numpy()


def test_near_attention_shows_the_last_30_keys() -> None:
    figure = FIGURES["attention_near"].draw(DRAWN, heads=[0], query=63)
    assert curve(figure.axes[0], 0)[:, 0].tolist() == list(range(34, 64))


@pytest.mark.parametrize(
    ("name", "axis"),
    [
        ("attention", KEY),
        ("attention_near", KEY),
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
