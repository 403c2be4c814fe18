"""What the figures of `Heads` hold: every number of the head cards."""

from __future__ import annotations

from matplotlib.axes import Axes

from detoklens.figures.theme import REFERENCE
from detoklens.questions.heads.figures import COMPARED, MEASURES
from detoklens.questions.heads.question import Heads
from tests.figures.synthetic import tables

DRAWN = tables(3)
FIGURES = {spec.name: spec for spec in Heads.figures}
COMPARISONS = {spec.name: spec for spec in Heads.compared_figures}


def points(axes: Axes) -> list[list[float]]:
    """Values of each series of points, references left out."""
    return [list(line.get_xdata()) for line in axes.lines if line.get_label() != REFERENCE]


def values(table: str, column: str) -> list[float]:
    return DRAWN[table][column].to_list()


def test_head_cards_show_every_number_and_what_position_prefers() -> None:
    figure = FIGURES["head_cards"].draw(DRAWN)
    for axes, measure in zip(figure.axes, MEASURES, strict=True):
        assert points(axes)[-1] == values("heads", measure.column)
    assert points(figure.axes[0])[0] == values("heads", "auroc_null")
    assert {"margin", "lookback", "sd", "offset", "query_key"} <= {measure.column for measure in MEASURES}
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == [
        "self  L0H0",
        "previous token  L0H1",
        "broad  L0H2",
    ]


def test_compared_heads_are_lines_over_checkpoints_or_points() -> None:
    later = tables(3, seed=1)["heads"]
    figure = COMPARISONS["compare_heads"].draw({"heads": {"step 0": DRAWN["heads"], "step\n1": later}})
    for axes, measure in zip(figure.axes, COMPARED, strict=True):
        lines = [line for line in axes.lines if line.get_label() != REFERENCE]
        assert list(lines[0].get_ydata()) == [DRAWN["heads"][measure.column][0], later[measure.column][0]]
    assert [label.get_text() for label in figure.axes[-1].get_xticklabels()] == ["step 0", "step\\n1"]
    mixed = COMPARISONS["compare_heads"].draw({"heads": {"small": DRAWN["heads"], "large": tables(5)["heads"]}})
    cloud = [line for line in mixed.axes[0].lines if line.get_label() != REFERENCE]
    assert [len(line.get_xdata()) for line in cloud] == [8]
