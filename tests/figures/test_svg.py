"""An SVG that may stand in a page: beside others, under a strict policy, in light and dark, with hostile tokens."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure

from detoklens.figures.save import COLUMN, compact, svg_file_text, svg_text, thinned
from detoklens.figures.theme import INK
from tests.figures.specs import FIGURES
from tests.figures.synthetic import tables

DRAWN = tables(2)
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def heatmap() -> Figure:
    return FIGURES["heatmap"].draw(DRAWN, heads=[1])


@pytest.fixture(scope="module")
def shares() -> Figure:
    """Bars with hatches: patterns are referred to by url(#…)."""
    return FIGURES["contribution_shares"].draw(DRAWN)


def ids(text: str) -> list[str]:
    return [element.get("id") for element in ElementTree.fromstring(text).iter() if element.get("id")]


def test_ids_carry_the_figures_name_and_are_unique(heatmap: Figure, shares: Figure) -> None:
    found = ids(svg_text(heatmap, "one")) + ids(svg_text(shares, "two"))
    assert len(found) > 50
    assert len(set(found)) == len(found)
    assert all(name.split("-")[0] in ("one", "two") for name in found)


def test_every_reference_stays_inside_the_figure(shares: Figure) -> None:
    text = svg_text(shares, "two")
    referred = re.findall(r"url\(#([^)]*)\)", text) + re.findall(r'href="#([^"]*)"', text)
    assert any("url(#" in line for line in text.splitlines())
    assert set(referred) <= set(ids(text))
    assert not re.findall(r'href="(?!#|data:image/png)', text)
    assert not re.findall(r"https?://(?!www\.w3\.org/)", text)


def test_no_style_is_left_for_a_content_security_policy_to_refuse(heatmap: Figure, shares: Figure) -> None:
    for figure in (heatmap, shares):
        root = ElementTree.fromstring(svg_text(figure, "x"))
        assert not any("style" in element.attrib for element in root.iter())
        assert not {f"{SVG}style", f"{SVG}script", f"{SVG}metadata"} & {element.tag for element in root.iter()}


def test_presentation_survives_as_attributes(shares: Figure) -> None:
    root = ElementTree.fromstring(svg_text(shares, "x"))
    text = next(element for element in root.iter(f"{SVG}text") if element.text == "L0H0")
    assert text.get("font-size") == "6px"
    assert text.get("font-family", "").startswith("'DejaVu Sans'")
    assert {"#0072b2", "#d55e00"} <= {element.get("fill") for element in root.iter()}


def test_ink_becomes_the_pages_text_colour_but_stays_in_a_file(heatmap: Figure) -> None:
    page, file = svg_text(heatmap, "x"), svg_file_text(heatmap, "x")
    assert "currentColor" in page
    assert INK not in page
    assert INK in file
    assert "currentColor" not in file
    assert "#000000" not in page, "something is drawn in a black that dark ground would swallow"


def test_the_background_is_the_pages(shares: Figure) -> None:
    fills = {element.get("fill") for element in ElementTree.fromstring(svg_text(shares, "x")).iter()}
    assert "#ffffff" not in fills


def test_tokens_are_text_and_nothing_else(heatmap: Figure) -> None:
    text = svg_text(heatmap, "x")
    shown = [element.text for element in ElementTree.fromstring(text).iter(f"{SVG}text")]
    assert {"</script>", "$x^2$", "&<>\"'", "\\u202eabc", "\\x00\\n"} <= set(shown)
    assert "</script>" not in text
    assert "<!--" not in text


def test_a_screen_reader_hears_title_and_description(heatmap: Figure) -> None:
    root = ElementTree.fromstring(svg_text(heatmap, "heat map", "Title <b>", "What & why"))
    assert root.get("role") == "img"
    assert root.get("aria-labelledby") == "heat-map-title heat-map-desc"
    assert [(child.tag, child.get("id"), child.text) for child in root[:2]] == [
        (f"{SVG}title", "heat-map-title", "Title <b>"),
        (f"{SVG}desc", "heat-map-desc", "What & why"),
    ]


def test_the_same_figure_gives_the_same_text(heatmap: Figure) -> None:
    assert svg_text(heatmap, "x") == svg_text(FIGURES["heatmap"].draw(DRAWN, heads=[1]), "x")


def test_a_cloud_of_points_is_one_image() -> None:
    figure = FIGURES["token_alone"].draw(DRAWN)
    root = ElementTree.fromstring(svg_text(figure, "x"))
    assert len(list(root.iter(f"{SVG}image"))) == len(figure.axes)
    assert len(svg_text(FIGURES["token_alone"].draw(tables(2, vocabulary=20_000)), "x")) < 1_000_000


def test_a_long_path_keeps_what_an_eye_can_tell() -> None:
    random = np.random.default_rng(0)
    x, y = np.round(np.linspace(10, 110, 2001), 2), random.normal(size=2001).cumsum()
    kept = thinned(np.stack([x, y], axis=1))
    assert len(kept) < 4 * 100 / COLUMN
    np.testing.assert_array_equal(kept[[0, -1]], [[10, y[0]], [110, y[-1]]])
    for column in range(int(10 / COLUMN), int(110 / COLUMN)):
        before, after = y[(x / COLUMN).astype(int) == column], kept[(kept[:, 0] / COLUMN).astype(int) == column, 1]
        assert (before.min(), before.max()) == (after.min(), after.max())


def test_a_long_path_is_written_as_steps() -> None:
    places = np.random.default_rng(0).normal(size=(60, 2)).cumsum(axis=0)
    line = " L ".join(f"{x:.6f} {y:.6f}" for x, y in places)
    both = compact(f"M {line} z M {line}")
    assert (both.count("M"), both.count("z")) == (2, 1)
    for written in both.replace("z", "").split("M")[1:]:
        steps = np.array(re.findall(r"-?\d*\.?\d+", written), float)
        assert np.abs(steps.reshape(-1, 2).cumsum(axis=0) - places).max() < 0.06
    assert compact("M 1 2 L 3.123456 4") == "M 1 2 L 3.123456 4"
    curved = "M 0 0 " + "L 1 1 " * 300 + "C 1 2 3 4 5 6"
    assert compact(curved) == curved
