"""No label covers another or leaves the figure, from one head to 32, in a column and on a page."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from detoklens.figures.panels import TALLEST, Grid, Margins
from detoklens.figures.theme import themed
from tests.figures.specs import COMPARISONS, FIGURES
from tests.figures.synthetic import tables

TOUCH = 1.5  # pixels at 200 per inch by which two boxes of text may overlap: boxes are wider than letters
SMALL = tables(1, positions=1024, vocabulary=50)
USUAL = tables(12, positions=1024, vocabulary=50)
MANY = tables(32, positions=1024, vocabulary=50)


@pytest.mark.parametrize("name", ["position_sum", "contributions", "roc"])
def test_a_low_figure_still_holds_its_axis_label(name: str) -> None:
    assert collisions(FIGURES[name].draw(tables(2), width="column")) == []


@pytest.mark.parametrize("name", COMPARISONS)
@pytest.mark.parametrize("width", ["column", "page"])
def test_labels_of_several_checkpoints_stand_apart(name: str, width: str) -> None:
    several = {
        table: {f"step {n}000 of a long run": USUAL[table] for n in range(4)} for table in COMPARISONS[name].tables
    }
    assert collisions(COMPARISONS[name].draw(several, width=width)) == []


@given(st.integers(1, 32), st.floats(2, 12), st.sampled_from([1, 2]))
def test_panels_lie_inside_the_figure_and_apart(panels: int, total: float, multiple: int) -> None:
    margins = Margins()
    grid = Grid.fit(panels, total, margins, narrowest=1.1, proportion=0.62, multiple=multiple)
    places = [Bbox.from_bounds(*grid.place(index, total, margins)) for index in range(panels)]
    assert all(place.x0 > 0 and place.x1 < 1 and place.y0 > 0 and place.y1 < 1 for place in places)
    assert not any(one.overlaps(other) for one, other in combinations(places, 2))
    assert grid.columns % multiple == 0
    assert grid.height(margins) <= TALLEST or grid.panel_width < 0.5 or grid.columns >= panels


def collisions(figure: Figure) -> list[tuple[str, str]]:
    """Pairs of texts that cover each other, and texts that leave the canvas."""
    canvas = FigureCanvasAgg(figure)
    with themed():
        figure.draw_without_rendering()
    wide, tall = canvas.get_width_height()
    boxes = [(text.get_text(), text.get_window_extent(canvas.get_renderer())) for text in texts(figure)]
    boxes += [("the legend", legend.get_window_extent(canvas.get_renderer())) for legend in figure.legends]
    outside = [
        (name, "outside")
        for name, box in boxes
        if box.x0 < -TOUCH or box.y0 < -TOUCH or box.x1 > wide + TOUCH or box.y1 > tall + TOUCH
    ]
    return outside + [(one, other) for (one, a), (other, b) in combinations(boxes, 2) if covers(a, b)]


def covers(one: Bbox, other: Bbox) -> bool:
    across = min(one.x1, other.x1) - max(one.x0, other.x0)
    up = min(one.y1, other.y1) - max(one.y0, other.y0)
    return across > TOUCH and up > TOUCH


def texts(figure: Figure) -> list[Text]:
    """Every text that is seen, once; a legend counts as a whole."""
    found = [text for text in figure.texts if text.get_text().strip()]
    for axes in figure.axes:
        found += [*axes.texts, axes._left_title, *(tick_labels(axes) if axes.axison else ())]
    return [text for text in {id(text): text for text in found}.values() if text.get_text().strip()]


def tick_labels(axes: Axes) -> list[Text]:
    labels = []
    for axis in (axes.xaxis, axes.yaxis):
        low, high = sorted(axis.get_view_interval())
        every = (*axis.get_major_ticks(), *axis.get_minor_ticks())
        ticks = [tick for tick in every if low <= tick.get_loc() <= high]
        labels += [tick.label1 for tick in ticks if tick.label1.get_visible()]
    return labels
