"""What the figure of words holds: one point for each head and number."""

from __future__ import annotations

from matplotlib.axes import Axes

from detoklens.figures.theme import REFERENCE
from tests.figures.specs import FIGURES
from tests.figures.synthetic import tables

DRAWN = tables(3)
COLUMNS = [["null_median_share", "median_share"], ["first"], ["top_1_percent"], ["top_10_percent"]]


def points(axes: Axes) -> list[list[float]]:
    """Values of each series of points, references left out."""
    return [list(line.get_xdata()) for line in axes.lines if line.get_label() != REFERENCE]


def test_each_panel_shows_its_columns() -> None:
    figure = FIGURES["words"].draw(DRAWN)
    for axes, names in zip(figure.axes, COLUMNS, strict=True):
        assert points(axes) == [DRAWN["words_by_head"][name].to_list() for name in names]


def test_a_line_marks_what_chance_would_give() -> None:
    figure = FIGURES["words"].draw(DRAWN, heads=[2, 0])
    marks = [line.get_xdata()[0] for axes in figure.axes for line in axes.lines if line.get_label() == REFERENCE]
    assert marks == [0.5, 0.0, 0.01, 0.1]
    assert points(figure.axes[1]) == [[DRAWN["words_by_head"]["first"][head] for head in (2, 0)]]
