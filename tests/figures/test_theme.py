"""The theme: widths, styles that differ without colour, and settings left as they were."""

from __future__ import annotations

import re
from importlib.resources import files
from itertools import combinations
from pathlib import Path

import matplotlib
import pytest
from matplotlib.colors import to_hex, to_rgb
from matplotlib.text import Text

from detoklens.errors import RangeError
from detoklens.figures.save import save, svg_text
from detoklens.figures.theme import BESIDE, INK, POINT, POINT_OPACITY, SERIES, SOFT, inches, themed
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
    for ending in ("svg", "pdf", "png"):
        save(figure, tmp_path / f"heatmap.{ending}")
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


def luminance(colour: str) -> float:
    """As the web's rules of accessibility define it."""
    parts = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(colour)]
    return sum(part * weight for part, weight in zip(parts, (0.2126, 0.7152, 0.0722), strict=True))


def contrast(colour: str, ground: str, opacity: float = 1.0) -> float:
    """Of a colour on a ground that shines through it."""
    seen = [opacity * top + (1 - opacity) * below for top, below in zip(to_rgb(colour), to_rgb(ground), strict=True)]
    light, dark = sorted((luminance(to_hex(seen)), luminance(ground)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def page_colours(scheme: str) -> dict[str, str]:
    """The variables of the page's style sheet in the light or in the dark."""
    style = files("detoklens.report").joinpath("assets", "page.css").read_text(encoding="utf-8")
    blocks = {"light": r"^:root \{([^}]*)\}", "dark": r':root\[data-scheme="dark"\] \{([^}]*)\}'}
    block = re.search(blocks[scheme], style, re.MULTILINE)
    return dict(re.findall(r"--(\w+): (#\w+)", block[1]))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_marks_can_be_read_on_the_page(scheme: str) -> None:
    """WCAG's ratios: 4.5 for text and links, 3 for marks; series in the dark are as legible as text."""
    colours = page_colours(scheme)
    ground, ink = colours["ground"], colours["ink"]
    for name in ("ink", "soft", "link"):
        assert contrast(colours[name], ground) >= 4.5, name
        assert contrast(colours[name], colours["band"]) >= 4.5, name
    assert contrast(ink, colours["seen"]) >= 4.5
    assert contrast(ink, ground, SOFT) >= 4.5
    assert contrast(ink, ground, BESIDE) >= 3
    assert contrast(POINT, ground, POINT_OPACITY) >= 3
    for place, style in enumerate(SERIES, 1):
        assert colours[f"c{place}"] == (style.on_dark if scheme == "dark" else style.colour)
        assert contrast(colours[f"c{place}"], ground) >= (4.5 if scheme == "dark" else 3), style


def test_the_site_gives_every_series_its_colour_on_dark() -> None:
    style = (Path(__file__).parents[2] / "docs/static/site.css").read_text(encoding="utf-8")
    for place, series in enumerate(SERIES, 1):
        assert style.count(f"--c{place}: {series.on_dark};") == 2, "chosen, and the system's"
        for what in ("fill", "stroke"):
            assert f'[{what}="{series.colour}"] {{ {what}: var(--c{place}, {series.colour}); }}' in style


def test_the_page_gives_every_series_its_variable() -> None:
    style = files("detoklens.report").joinpath("assets", "page.css").read_text(encoding="utf-8")
    for place, series in enumerate(SERIES, 1):
        for what in ("fill", "stroke"):
            assert f'.plot [{what}="{series.colour}"] {{ {what}: var(--c{place}); }}' in style


def test_no_text_of_a_figure_has_a_series_colour() -> None:
    drawn = tables(2)
    for name in ("auroc", "roc", "partners", "token_alone", "contributions"):
        colours = {to_hex(text.get_color()) for text in FIGURES[name].draw(drawn).findobj(Text) if text.get_text()}
        assert colours == {INK}, name


def test_series_are_none_of_them_the_ink() -> None:
    assert INK not in {style.colour for style in SERIES}


def test_themes_end_with_their_block() -> None:
    with themed():
        assert matplotlib.rcParams["font.size"] == 7
    assert matplotlib.rcParams["font.size"] == BEFORE["font.size"] != 7
