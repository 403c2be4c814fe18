"""Every figure can be drawn from the tables it names: with nulls, without optional tables, with one head."""

from __future__ import annotations

import subprocess
import sys

import polars as pl
import pytest

from detoklens.figures import COMPARISONS, FIGURES, QUESTIONS
from tests.figures.synthetic import tables

DRAWN = tables(3)
ALL = [*FIGURES, *COMPARISONS]
WORDS_ONLY = {"partners"}  # a figure of text: it has no panels


def given(name: str, drawn: dict[str, pl.DataFrame]) -> dict[str, object]:
    """The tables as the figure takes them: a comparison takes one for each of two checkpoints."""
    if name in FIGURES:
        return dict(drawn)
    return {table: {"first": drawn[table], "second": drawn[table]} for table in COMPARISONS[name].tables}


def spec_of(name: str):
    return FIGURES.get(name) or COMPARISONS[name]


@pytest.mark.parametrize("name", ALL)
def test_a_figure_names_declared_tables_and_says_what_it_shows(name: str) -> None:
    spec = spec_of(name)
    assert set(spec.tables) | set(spec.optional) <= set(DRAWN)
    assert spec.question in QUESTIONS
    assert spec.caption.endswith(".")
    assert spec.title
    assert spec.can_draw(given(name, DRAWN))
    assert not spec.can_draw({})


@pytest.mark.parametrize("name", ALL)
def test_a_figure_does_without_its_optional_tables(name: str) -> None:
    spec = spec_of(name)
    needed = {table: given(name, DRAWN)[table] for table in spec.tables}
    assert spec.draw(needed, width="column").get_size_inches()[0] == 3.3


@pytest.mark.parametrize("name", [name for name in ALL if spec_of(name).per_head and name not in WORDS_ONLY])
def test_a_figure_with_a_panel_a_head_shows_the_asked_heads_in_the_asked_order(name: str) -> None:
    figure = spec_of(name).draw(given(name, DRAWN), heads=[2, 0])
    titles = [axes.get_title(loc="left").split("\n")[0].split()[0].strip(",") for axes in figure.axes if axes.axison]
    assert [title for title in dict.fromkeys(titles) if title.startswith("L0H")] == ["L0H2", "L0H0"]


@pytest.mark.parametrize("name", [name for name in ALL if name not in WORDS_ONLY])
def test_panels_without_any_number_say_so(name: str) -> None:
    nothing = {
        table: frame.with_columns(pl.lit(None, dtype=dtype).alias(column) for column, dtype in _values(frame))
        for table, frame in DRAWN.items()
    }
    figure = spec_of(name).draw(given(name, nothing))
    panels = [axes for axes in figure.axes if axes.axison]
    assert panels
    for axes in panels:
        assert [text.get_text() for text in axes.texts if text.get_text() == "no data"] == ["no data"]


def _values(frame: pl.DataFrame) -> list[tuple[str, pl.DataType]]:
    kept = {"is_word", "count", "outlier", "undertrained"}
    return [(name, dtype) for name, dtype in frame.schema.items() if dtype.is_float() or name in kept]


@pytest.mark.parametrize("name", ALL)
def test_one_head_and_one_position_are_enough(name: str) -> None:
    smallest = tables(1, positions=1, vocabulary=1)
    assert spec_of(name).draw(given(name, smallest), width="column")


def test_naming_the_figures_does_not_import_matplotlib() -> None:
    code = "import sys, detoklens.figures; print('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


def test_no_figure_touches_pyplot() -> None:
    code = (
        "import sys\nfrom importlib import import_module\nfrom detoklens.figures import COMPARISONS, FIGURES\n"
        "[spec.function for spec in [*FIGURES.values(), *COMPARISONS.values()]]\n"
        "print('matplotlib.figure' in sys.modules, 'matplotlib.pyplot' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "True False\n"
