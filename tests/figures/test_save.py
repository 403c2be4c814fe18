"""Figures as files: three formats, the same bytes for the same figure, whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from detoklens.errors import OutputError
from detoklens.figures.save import FORMATS, is_ours, save
from tests.figures.specs import FIGURES
from tests.figures.synthetic import tables


@pytest.fixture(scope="module")
def figure() -> Figure:
    return FIGURES["auroc"].draw(tables(3), width="column")


def test_three_formats_under_the_figures_name(figure: Figure, tmp_path: Path) -> None:
    paths = save(figure, tmp_path / "new" / "folder", "auroc", title="AUROC by head")
    assert [path.name for path in paths] == ["auroc.svg", "auroc.pdf", "auroc.png"]
    assert sorted(path.name for path in (tmp_path / "new" / "folder").iterdir()) == [
        "auroc.pdf",
        "auroc.png",
        "auroc.svg",
    ]
    assert [path.read_bytes()[:5] for path in paths] == [b"<?xml", b"%PDF-", b"\x89PNG\r"]


def test_only_the_asked_formats(figure: Figure, tmp_path: Path) -> None:
    assert [path.suffix for path in save(figure, tmp_path, "auroc", formats=["png"])] == [".png"]


def test_text_is_text_in_vector_files(figure: Figure, tmp_path: Path) -> None:
    svg, pdf, _ = save(figure, tmp_path, "auroc")
    assert ">L0H2</text>" in svg.read_text(encoding="utf-8")
    content = pdf.read_bytes()
    assert b"/CIDFontType2" in content or b"/TrueType" in content
    assert b"/Type3" not in content


def test_figures_saved_by_hand_embed_truetype_fonts_too(figure: Figure, tmp_path: Path) -> None:
    figure.savefig(tmp_path / "auroc.pdf")
    assert b"/Type3" not in (tmp_path / "auroc.pdf").read_bytes()


def test_symbols_are_mathtext_in_pictures_and_text_in_svg(tmp_path: Path) -> None:
    figure = FIGURES["contributions"].draw(tables(3))
    labels = [text.get_text() for text in figure.findobj(Text)]
    svg, pdf, _ = save(figure, tmp_path, "contributions")
    assert "(Tᵉᵉ)</text>" in svg.read_text(encoding="utf-8")
    assert b"DejaVuSans-Oblique" in pdf.read_bytes()
    assert [text.get_text() for text in figure.findobj(Text)] == labels
    assert not any(text.get_parse_math() for text in figure.findobj(Text))


def test_the_same_figure_gives_the_same_bytes(figure: Figure, tmp_path: Path) -> None:
    first = [path.read_bytes() for path in save(figure, tmp_path / "first", "auroc")]
    again = FIGURES["auroc"].draw(tables(3), width="column")
    assert [path.read_bytes() for path in save(again, tmp_path / "second", "auroc")] == first


def test_a_picture_has_the_figures_size(figure: Figure, tmp_path: Path) -> None:
    (path,) = save(figure, tmp_path, "auroc", formats=["png"])
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
        save(figure, tmp_path, "auroc", formats=["png"])
    assert [path.name for path in tmp_path.iterdir()] == ["auroc.png"]
    assert (tmp_path / "auroc.png").read_text() == "old"


@pytest.mark.parametrize("extension", FORMATS)
def test_figures_of_ours_are_known_and_others_are_not(figure: Figure, tmp_path: Path, extension: str) -> None:
    (path,) = save(figure, tmp_path, "auroc", formats=[extension])
    assert is_ours(path)
    other = tmp_path / f"other.{extension}"
    figure.savefig(other)
    assert not is_ours(other)
    assert not is_ours(tmp_path / f"nowhere.{extension}")
