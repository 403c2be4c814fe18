"""Figures as files: three formats, the same bytes for the same figure, whole or not at all."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest
from matplotlib import pyplot
from matplotlib.backend_bases import RendererBase
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from detoklens.errors import OutputError
from detoklens.figures import theme
from detoklens.figures.save import is_ours, save
from detoklens.figures.shown import ShownFigure
from tests.figures.specs import FIGURES
from tests.figures.synthetic import tables

FORMATS = ("svg", "pdf", "png")


def saved(figure: Figure, folder: Path, formats: Sequence[str] = FORMATS, title: str = "") -> list[Path]:
    paths = [folder / f"auroc.{ending}" for ending in formats]
    for path in paths:
        save(figure, path, title=title)
    return paths


@pytest.fixture(scope="module")
def figure() -> Figure:
    return FIGURES["auroc"].draw(tables(3), width="column")


def test_the_ending_is_the_format_and_the_path_is_kept(figure: Figure, tmp_path: Path) -> None:
    paths = saved(figure, tmp_path / "new" / "folder", [*FORMATS, "SVG", "Pdf"], title="AUROC by head")
    assert set((tmp_path / "new" / "folder").iterdir()) == set(paths)
    assert [path.read_bytes()[:5] for path in paths] == [b"<?xml", b"%PDF-", b"\x89PNG\r", b"<?xml", b"%PDF-"]


def test_text_is_text_in_vector_files(figure: Figure, tmp_path: Path) -> None:
    svg, pdf, _ = saved(figure, tmp_path)
    assert ">L0H2</text>" in svg.read_text(encoding="utf-8")
    content = pdf.read_bytes()
    assert b"/CIDFontType2" in content or b"/TrueType" in content
    assert b"/Type3" not in content


def fonts_in(pdf: bytes) -> set[str]:
    """The kinds of the fonts in a PDF file, as `pdffonts` lists them: `TrueType`, `CID TrueType`, `Type 3` …"""
    fonts = [each for each in pdf.split(b"endobj") if re.search(rb"/Type /Font\b", each)]
    return {kind.decode() for each in fonts for kind in re.findall(rb"/Subtype /(\w+)", each)}


@pytest.mark.parametrize("name", ["auroc", "contributions", "partners", "position_alone"])
def test_figures_saved_by_hand_embed_truetype_fonts(name: str, tmp_path: Path) -> None:
    """Venues reject Type 3 fonts, matplotlib's default."""
    figure = FIGURES[name].draw(tables(2))
    assert isinstance(figure, ShownFigure), "which test_specs.py checks of every figure"
    figure.savefig(tmp_path / "figure.pdf")
    assert fonts_in((tmp_path / "figure.pdf").read_bytes()) <= {"Type0", "CIDFontType2", "TrueType"}


def test_pdffonts_finds_no_type_3_font(figure: Figure, tmp_path: Path) -> None:
    program = shutil.which("pdffonts")
    figure.savefig(tmp_path / "ours.pdf")
    Figure.savefig(figure, tmp_path / "plain.pdf")
    assert "Type3" in fonts_in((tmp_path / "plain.pdf").read_bytes()), "the parser sees Type 3 fonts where there are"
    if program is None:
        pytest.skip("pdffonts is not installed (poppler-utils); the files were parsed instead")
    lines = subprocess.run([program, tmp_path / "ours.pdf"], check=True, capture_output=True, text=True).stdout
    assert "TrueType" in lines
    assert "Type 3" not in lines


def test_symbols_are_raised_letters_everywhere(tmp_path: Path) -> None:
    figure = FIGURES["contributions"].draw(tables(3))
    labels = [text.get_text() for text in figure.findobj(Text)]
    svg, pdf, _ = saved(figure, tmp_path)
    texts = ElementTree.parse(svg).findall(".//{http://www.w3.org/2000/svg}text")
    written = {"".join(text.itertext()): text for text in texts}
    assert {"token and token (Tee)", "token alone (Te)", "position and token (Tpe)"} <= set(written)
    raised, after = written["token and token (Tee)"]
    assert (raised.text, raised.get("dy"), raised.get("font-size")) == ("ee", "-0.45em", "80%")
    assert (after.text, after.get("dy")) == (")", "0.36em"), "0.45 em of 80 % are taken back"
    assert b"DejaVuSans-Oblique" in pdf.read_bytes()
    assert [text.get_text() for text in figure.findobj(Text)] == labels
    assert not any(text.get_parse_math() for text in figure.findobj(Text))


def test_a_figure_of_plain_matplotlib_is_white_as_png(tmp_path: Path) -> None:
    """Another package's question may draw one; its dark ink can't be read on a dark background."""
    with theme.themed():
        plain = Figure()
        plain.add_subplot().plot([1, 2], [3, 4])
    save(plain, tmp_path / "plain.png")
    assert Image.open(tmp_path / "plain.png").convert("RGBA").getpixel((0, 0)) == (255, 255, 255, 255)


@pytest.mark.parametrize("ending", ["pdf", "png"])
def test_symbols_in_the_names_of_rows_are_raised_too(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drawing writes the labels of ticks again, so changing their text alone has no effect."""
    drawn: list[str] = []

    def noted(text: Text, renderer: RendererBase) -> None:
        drawn.append(text.get_text() if text.get_parse_math() else "")
        draw(text, renderer)

    figure, draw = FIGURES["twins"].draw(tables(2)), Text.draw
    before = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    monkeypatch.setattr(Text, "draw", noted)
    save(figure, tmp_path / f"twins.{ending}")
    assert {"without $T^{ee}$", "only $T^{p}$"} <= set(drawn)
    figure.canvas.draw()
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == before


def test_symbols_are_raised_in_the_users_own_axes() -> None:
    _, axes = pyplot.subplots()
    FIGURES["lexicon_scores"].draw(tables(1), ax=axes)
    assert axes.get_ylabel() == "token and token ($T^{ee}$)"
    assert axes.yaxis.label.get_parse_math()
    pyplot.close()


def test_the_same_figure_gives_the_same_bytes(figure: Figure, tmp_path: Path) -> None:
    first = [path.read_bytes() for path in saved(figure, tmp_path / "first")]
    again = FIGURES["auroc"].draw(tables(3), width="column")
    assert [path.read_bytes() for path in saved(again, tmp_path / "second")] == first


def test_a_picture_has_the_figures_size(figure: Figure, tmp_path: Path) -> None:
    (path,) = saved(figure, tmp_path, ["png"])
    wide, tall = figure.get_size_inches()
    with Image.open(path) as picture:
        assert picture.size == (int(wide * 200), int(tall * 200))
        assert picture.convert("RGBA").getpixel((0, 0)) == (255, 255, 255, 255), "pictures are opaque"


def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    figure: Figure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "auroc.png").write_text("old")

    def fails(self: Path, target: Path) -> Path:
        raise OSError("disk full")

    monkeypatch.setattr(Path, "replace", fails)
    with pytest.raises(OutputError, match="disk full"):
        saved(figure, tmp_path, ["png"])
    assert [path.name for path in tmp_path.iterdir()] == ["auroc.png"]
    assert (tmp_path / "auroc.png").read_text() == "old"


@pytest.mark.parametrize("extension", FORMATS)
def test_figures_of_ours_are_known_and_others_are_not(figure: Figure, tmp_path: Path, extension: str) -> None:
    (path,) = saved(figure, tmp_path, [extension])
    assert is_ours(path)
    other = tmp_path / f"other.{extension}"
    figure.savefig(other)
    assert not is_ours(other)
    assert not is_ours(tmp_path / f"nowhere.{extension}")


def test_a_picture_saved_by_hand_has_a_white_background(figure: Figure, tmp_path: Path) -> None:
    figure.savefig(tmp_path / "x.png")
    assert Image.open(tmp_path / "x.png").convert("RGBA").getpixel((0, 0)) == (255, 255, 255, 255)
    figure.savefig(tmp_path / "y.png", transparent=True)
    assert Image.open(tmp_path / "y.png").convert("RGBA").getpixel((0, 0))[3] == 0  # type: ignore[index]
