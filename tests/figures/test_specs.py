"""Every question's figure can be drawn from the tables it names: with nulls, with one head, without optional ones."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from matplotlib.figure import Figure

from detoklens.errors import RangeError
from detoklens.figures.shown import ShownFigure
from tests.figures import specs
from tests.figures.synthetic import tables
from tests.figures.test_layout import MANY, SMALL, USUAL, collisions

DRAWN = tables(3)
FIGURES = {name: spec for name, spec in specs.FIGURES.items() if name != "explain"}  # its tables depend on the model
OWN_LAYOUT = {"heatmap", "partners"}
WORDS_ONLY = {"partners"}  # a figure of text: it has no panels


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_names_declared_tables_and_says_what_it_shows(name: str) -> None:
    spec = FIGURES[name]
    assert set(spec.tables) | set(spec.optional) <= set(DRAWN), "tests/figures/synthetic.py makes every table up"
    assert spec.caption.endswith(".")
    assert spec.title
    assert spec.can_draw(DRAWN)
    assert not spec.can_draw({})
    assert not spec.can_draw({table: frame.clear() for table, frame in DRAWN.items()})


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_does_without_its_optional_tables(name: str) -> None:
    needed = {table: DRAWN[table] for table in FIGURES[name].tables}
    assert FIGURES[name].draw(needed, width="column").get_size_inches()[0] == 3.3


@pytest.mark.parametrize("name", [name for name in FIGURES if FIGURES[name].per_head and name not in WORDS_ONLY])
def test_a_figure_with_a_panel_a_head_shows_the_asked_heads_in_the_asked_order(name: str) -> None:
    figure = FIGURES[name].draw(DRAWN, heads=[2, 0])
    titles = [axes.get_title(loc="left").split("\n")[0].split()[0].strip(",:") for axes in figure.axes if axes.axison]
    titles += [label.get_text() for label in figure.axes[0].get_yticklabels()]  # heads are panels or rows
    assert [title for title in dict.fromkeys(titles) if title.startswith("L0H")] == ["L0H2", "L0H0"]


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_drawn_into_given_axes_or_refused(name: str) -> None:
    usual = [axes for axes in FIGURES[name].draw(DRAWN).axes if axes.axison]
    figure = Figure(figsize=(9, 9))
    given = np.atleast_1d(figure.subplots(max(1, len(usual))))
    if name in OWN_LAYOUT:
        with pytest.raises(RangeError, match=r"own layout|pass an axes for each panel"):
            FIGURES[name].draw(DRAWN, ax=given)
        return
    assert FIGURES[name].draw(DRAWN, ax=given) is figure
    assert len(figure.axes) == len(given)
    for ours, theirs in zip(given, usual, strict=True):
        assert bool(ours.get_title(loc="left")) == bool(theirs.get_title(loc="left"))
        assert len(ours.lines) + len(ours.collections) == len(theirs.lines) + len(theirs.collections)


@pytest.mark.parametrize("name", [name for name in FIGURES if name not in WORDS_ONLY])
def test_panels_without_any_number_say_so(name: str) -> None:
    nothing = {
        table: frame.with_columns(pl.lit(None, dtype=dtype).alias(column) for column, dtype in _values(frame))
        for table, frame in DRAWN.items()
    }
    panels = [axes for axes in FIGURES[name].draw(nothing).axes if axes.axison]
    assert panels
    for axes in panels:
        assert [text.get_text() for text in axes.texts if text.get_text() == "no data"] == ["no data"]


def _values(frame: pl.DataFrame) -> list[tuple[str, pl.DataType]]:
    kept = {"is_word", "count", "outlier", "undertrained"}
    return [(name, dtype) for name, dtype in frame.schema.items() if dtype.is_float() or name in kept]


@pytest.mark.parametrize("name", FIGURES)
def test_one_head_and_one_position_are_enough(name: str) -> None:
    assert isinstance(FIGURES[name].draw(tables(1, positions=1, vocabulary=1), width="column"), ShownFigure)


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize(
    ("drawn", "width"),
    [(SMALL, "column"), (USUAL, "page"), (MANY, "column")],
    ids=["1-column", "12-page", "32-column"],
)
def test_labels_stand_apart(name: str, drawn: dict, width: str) -> None:
    assert collisions(FIGURES[name].draw(drawn, width=width)) == []
