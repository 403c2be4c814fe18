"""What the figures of twins hold: a point and an interval for each condition, at each place."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from matplotlib.axes import Axes

from detoklens.figures.theme import REFERENCE
from detoklens.questions.twins.verdict import CONTROLS
from tests.figures.specs import COMPARISONS, FIGURES
from tests.figures.synthetic import tables

DRAWN = tables(3)
TABLE = DRAWN["twins_by_condition"]


def values(axes: Axes, across: bool) -> list[float]:
    """All that is drawn as points, undefined ones left out."""
    drawn = [line for line in axes.lines if line.get_label() != REFERENCE]
    numbers = [value for line in drawn for value in (line.get_xdata() if across else line.get_ydata())]
    return sorted(value for value in numbers if value == value)


def rows(place: str, *conditions: str) -> pl.DataFrame:
    shortest = TABLE.filter(place=place, pieces=2)
    return shortest.filter(pl.col("condition").is_in(conditions)) if conditions else shortest


def test_each_condition_has_a_point_at_each_place_and_its_ratio() -> None:
    figure = FIGURES["twins"].draw(DRAWN)
    shown = [("attention", "median_rank"), ("block", "median_rank"), ("block", "rank_ratio")]
    for axes, (place, column) in zip(figure.axes, shown, strict=True):
        assert values(axes, across=True) == sorted(rows(place)[column])
        marks = [line.get_xdata()[0] for line in axes.lines if line.get_label() == REFERENCE]
        assert marks == rows(place, "whole")[column].to_list()
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert names[:6] == ["whole", "null", "last piece", "first piece", "additive", "cut L0H0"]
    assert "without Tᵉᵉ" in names


def test_one_large_rank_leaves_the_others_apart() -> None:
    """Ranks and ratios have a logarithmic axis over their range, with at least two round ticks."""
    for name, across in (("twins", True), ("twins_pieces", False)):
        for axes in FIGURES[name].draw(DRAWN).axes:
            axis = axes.xaxis if across else axes.yaxis
            low, high = sorted(axis.get_view_interval())
            assert axis.get_scale() == "log"
            assert low < min(values(axes, across)) < max(values(axes, across)) < high
            assert len([tick for tick in axis.get_majorticklocs() if low <= tick <= high]) >= 2


@pytest.mark.parametrize("largest", [1.01, 1.3, 2.4, 30.0, 4e4])
@pytest.mark.parametrize("smallest", [0.1, 0.97, 3.3, 4600.0])
def test_any_range_of_ranks_has_several_ticks(smallest: float, largest: float) -> None:
    table = pl.DataFrame({"median_rank": np.geomspace(smallest, smallest * largest, len(TABLE))})
    drawn = TABLE.with_columns(
        table["median_rank"], median_rank_low=table["median_rank"], median_rank_high=table["median_rank"]
    )
    for axes in FIGURES["twins_pieces"].draw({"twins_by_condition": drawn}).axes:
        low, high = axes.get_ylim()
        assert 2 <= len([tick for tick in axes.get_yticks() if low <= tick <= high]) <= 12


def test_words_of_more_pieces_stand_side_by_side() -> None:
    figure = FIGURES["twins_pieces"].draw(DRAWN)
    for axes, place in zip(figure.axes, ("attention", "block"), strict=True):
        shown = TABLE.filter(pl.col("condition").is_in(["whole", *CONTROLS]), place=place)
        assert values(axes, across=False) == sorted(shown["median_rank"])


def test_checkpoints_are_compared_at_the_last_place_that_all_know() -> None:
    early = TABLE.filter(place="attention")
    figure = COMPARISONS["compare_twins"].draw({"twins_by_condition": {"early": early, "late": TABLE}}, heads=[2])
    expected = [rows("attention", *CONTROLS), rows("attention", "cut_L0H2")]
    for axes, found in zip(figure.axes, expected, strict=True):
        assert values(axes, across=False) == sorted([*found["rank_ratio"], *found["rank_ratio"]])
