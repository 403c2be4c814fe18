"""The theme: widths, styles that differ without colour, and settings left as they were."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import matplotlib
import pytest
from matplotlib.colors import to_rgb
from matplotlib.text import Text

from detoklens.errors import RangeError
from detoklens.figures.save import save
from detoklens.figures.svg import svg_text
from detoklens.figures.theme import INK, SERIES, inches, themed
from tests.figures.specs import FIGURES
from tests.figures.synthetic import tables

BEFORE = dict(matplotlib.rcParams)  # taken while tests are collected, before any figure is drawn


@pytest.mark.parametrize(("width", "expected"), [("column", 3.3), ("page", 7.0), (4.5, 4.5), ("4.5", 4.5)])
def test_widths_have_names_or_inches(width: str | float, expected: float) -> None:
    assert inches(width) == expected


@pytest.mark.parametrize("width", ["wide", "", 0, -3, 1.9, 31, "nan", "inf"])
def test_other_widths_are_refused_in_one_line(width: str | float) -> None:
    with pytest.raises(RangeError, match=r"figure width .* column \(3.3 in\), page \(7.0 in\) nor 2 to 30 inches"):
        inches(width)


def test_a_figure_is_as_wide_as_asked() -> None:
    drawn = tables(2)
    for width in ("column", "page", 5):
        assert FIGURES["position_sum"].draw(drawn, width=width).get_size_inches()[0] == inches(width)


def test_drawing_and_saving_leave_all_settings_as_they_were(tmp_path: Path) -> None:
    figure = FIGURES["heatmap"].draw(tables(2))
    save(figure, tmp_path, "heatmap")
    svg_text(figure, "heatmap")
    assert dict(matplotlib.rcParams) == BEFORE


def test_the_users_settings_do_not_reach_a_figure() -> None:
    drawn = tables(1)
    plain = FIGURES["position_alone"].draw(drawn)
    with matplotlib.rc_context({"font.size": 40, "axes.edgecolor": "red", "text.usetex": True, "xtick.color": "red"}):
        other = FIGURES["position_alone"].draw(drawn)
        assert svg_text(other, "x") == svg_text(plain, "x")
        assert not any(text.get_usetex() for text in other.findobj(Text))


def test_mathtext_is_off_for_every_text() -> None:
    figure = FIGURES["heatmap"].draw(tables(1))
    texts = figure.findobj(Text)
    assert any("$" in text.get_text() for text in texts)
    assert not any(text.get_parse_math() for text in texts)


def test_series_differ_without_colour() -> None:
    for one, other in combinations(SERIES, 2):
        assert one.line != other.line
        assert one.marker != other.marker
        assert one.hatch != other.hatch
    lightness = [
        sum(part * weight for part, weight in zip(to_rgb(style.colour), (0.3, 0.59, 0.11), strict=True))
        for style in SERIES[:2]
    ]
    assert abs(lightness[0] - lightness[1]) > 0.05


def test_series_are_none_of_them_the_ink() -> None:
    assert INK not in {style.colour for style in SERIES}


def test_themes_end_with_their_block() -> None:
    with themed():
        assert matplotlib.rcParams["font.size"] == 7
    assert matplotlib.rcParams["font.size"] == BEFORE["font.size"] != 7
