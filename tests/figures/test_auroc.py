"""What the figures of `Auroc` hold: one point, bar or curve for each number of the tables."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from detoklens.figures.theme import REFERENCE
from detoklens.questions.auroc.compute import areas_under
from detoklens.questions.auroc.question import Auroc
from detoklens.questions.heads.question import Heads
from tests.figures.synthetic import tables

DRAWN = tables(3)
FIGURES = {spec.name: spec for spec in Auroc.figures}
COMPARISONS = {spec.name: spec for spec in Auroc.compared_figures}


def points(axes: Axes) -> list[list[float]]:
    """Values of each series of points, references left out."""
    return [list(line.get_xdata()) for line in axes.lines if line.get_label() != REFERENCE]


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def values(table: str, column: str) -> list[float]:
    return DRAWN[table][column].to_list()


@pytest.mark.parametrize("measure", ["seen", "all", "weighted"])
def test_auroc_has_its_interval_nulls_and_baseline(measure: str) -> None:
    figure = FIGURES["auroc"].draw(DRAWN, measure=measure)
    axes, matched = figure.axes
    assert points(matched) == [values("auroc_controls", f"matched{name}") for name in ("_null", "_frequency", "")]
    assert axes.get_xlim() == matched.get_xlim()
    controls = [values("auroc_controls", name) for name in ("shuffled_queries", "permuted_keys", "frequency")]
    margins = DRAWN["auroc_controls"].select("auroc", "above_within_class", "above_within_cluster").rows()
    controls.insert(1, [auroc - min(above) for auroc, *above in margins])  # the nulls are means over fewer tokens
    assert points(axes) == [*controls, values("auroc_by_head", measure)]
    ends = [(segment[0, 0], segment[1, 0]) for segment in axes.collections[0].get_segments()]
    low, high = values("auroc_by_head", f"{measure}_low"), values("auroc_by_head", f"{measure}_high")
    assert ends == list(zip(low, high, strict=True))
    assert [label.get_text() for label in axes.get_yticklabels()] == ["L0H0", "L0H1", "L0H2"]
    assert len(legend(figure)) == 5
    counted = max(values("auroc_by_head", "tokens" if measure == "all" else "tokens_seen"))
    assert f"{counted} query tokens" in axes.get_title(loc="left")
    assert [line.get_xdata()[0] for line in axes.lines if line.get_label() == REFERENCE] == [0.5]


def test_rows_follow_the_asked_heads_and_a_missing_head_has_no_point() -> None:
    (axes,) = FIGURES["auroc"].draw({"auroc_by_head": DRAWN["auroc_by_head"]}, heads=[2, 7, 0]).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["L0H2", "L0H7", "L0H0"]
    seen = values("auroc_by_head", "seen")
    np.testing.assert_array_equal(points(axes)[0], [seen[2], np.nan, seen[0]])
    assert axes.get_ylim()[0] > axes.get_ylim()[1], "the first head is on top"


def test_precision_stands_beside_that_of_a_constant_score() -> None:
    figure = FIGURES["precision"].draw(DRAWN)
    for axes, column in zip(figure.axes, ("average_precision", "precision_at_k"), strict=True):
        assert points(axes) == [values("precision_by_head", f"chance_{column}"), values("precision_by_head", column)]
    assert figure.axes[1].get_title(loc="left") == "precision of the top 10 keys"


def test_roc_curves_one_a_token_with_their_areas() -> None:
    figure = FIGURES["roc"].draw(DRAWN)
    assert legend(figure) == ["$iens$", "␣Jackson", "\\u6f22\\u5b57"]
    for head, axes in enumerate(figure.axes):
        curves = [line for line in axes.lines if line.get_label() != REFERENCE]
        rows = DRAWN["roc_points"].filter(head=head, token_id=9)
        np.testing.assert_allclose(curves[1].get_ydata(), rows["true_positive_rate"])
        areas = areas_under(DRAWN["roc_points"]).filter(head=head)["area"]
        said = [text.get_text().rsplit(maxsplit=1) for text in axes.texts]
        assert [area for _, area in said] == [f"{area:.2f}" for area in reversed(areas)]
        assert said[-1][0] == "$iens$"


def rounded(ends: tuple[float, float]) -> tuple[float, ...]:
    return tuple(round(end, 3) for end in ends)


def test_wherever_an_auroc_is_drawn_it_has_the_same_range() -> None:
    numbers = pl.selectors.float()
    names = ("auroc_by_head", "auroc_controls", "heads")
    usual = {name: DRAWN[name].with_columns(numbers * 0 + 0.6) for name in names}
    panels = [*FIGURES["auroc"].draw(usual).axes, *Heads.figures[0].draw(usual).axes[:1]]
    assert {rounded(axes.get_xlim()) for axes in panels} == {(-0.02, 1.02)}
    several = {name: {"a": table, "b": table.with_columns(numbers / 10)} for name, table in usual.items()}
    assert {rounded(axes.get_xlim()) for axes in COMPARISONS["compare_auroc"].draw(several).axes} == {(-0.02, 1.02)}


def test_roc_curves_of_asked_tokens() -> None:
    assert legend(FIGURES["roc"].draw(DRAWN, tokens=[11])) == ["\\u6f22\\u5b57"]


def test_compared_aurocs_share_the_heads_row() -> None:
    later = tables(4, seed=1)["auroc_by_head"]
    figure = COMPARISONS["compare_auroc"].draw({"auroc_by_head": {"one": DRAWN["auroc_by_head"], "two": later}})
    (axes,) = figure.axes
    assert legend(figure) == ["one", "two"]
    assert np.isnan(points(axes)[0][3])
    assert points(axes)[1] == later["seen"].to_list()


def test_compared_aurocs_stand_beside_their_nulls_and_matched_values() -> None:
    """One model has no counts: nothing is drawn of its controls."""
    compared = {"auroc_by_head": {"one": DRAWN["auroc_by_head"], "two": DRAWN["auroc_by_head"]}}
    figure = COMPARISONS["compare_auroc"].draw(compared | {"auroc_controls": {"one": DRAWN["auroc_controls"]}})
    plain, matched = figure.axes
    assert legend(figure) == ["one", "two", "largest null"]
    drawn = DRAWN["auroc_controls"]
    null = (
        drawn.select(pl.col("auroc") - pl.min_horizontal("above_null", "above_within_class", "above_within_cluster"))
        .to_series()
        .to_list()
    )
    assert points(plain) == [null, values("auroc_by_head", "seen"), values("auroc_by_head", "seen")]
    assert points(matched) == [values("auroc_controls", "matched_null"), values("auroc_controls", "matched")]
    assert plain.get_xlim() == matched.get_xlim()
