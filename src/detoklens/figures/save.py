"""A figure as files: SVG and PDF with text as text, PNG, each written whole or not at all.

Each says in its metadata that detoklens drew it, so that a file of another origin is not overwritten.
"""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from detoklens.figures import theme
from detoklens.figures.svg import MAKER, svg_file_text
from detoklens.writing import make_folder, write_whole

FORMATS = ("svg", "pdf", "png")
DRAWN_BY = "detoklens"
MARKS = {
    ".svg": '{}="{}"'.format(*MAKER).encode(),
    ".pdf": f"/Creator ({DRAWN_BY})".encode(),
    ".png": f"tEXtSoftware\0{DRAWN_BY}".encode(),
}
"""What a file of ours holds, by its ending."""


def is_ours(path: Path) -> bool:
    """Whether detoklens drew the figure in a file."""
    return path.is_file() and MARKS[path.suffix.lower()] in path.read_bytes()


def save(
    figure: Figure,
    folder: Path,
    name: str,
    *,
    title: str = "",
    description: str = "",
    formats: Sequence[str] = FORMATS,
) -> list[Path]:
    """Write FOLDER/NAME.svg, .pdf and .png; the same figure gives the same bytes."""
    make_folder(folder)
    paths = []
    for extension in formats:
        paths.append(folder / f"{name}.{extension}")
        write_whole(paths[-1], file_content(figure, extension, name, title=title, description=description))
    return paths


def file_content(figure: Figure, extension: str, name: str, *, title: str = "", description: str = "") -> bytes:
    """What a figure's file of this format holds."""
    if extension == "svg":
        return svg_file_text(figure, name, title, description).encode()
    return _rendered(figure, extension, title)


def _rendered(figure: Figure, extension: str, title: str) -> bytes:
    drawn = BytesIO()
    more: dict[str, Any]
    if extension == "pdf":
        more = {"metadata": {"Title": title, "CreationDate": None, "Creator": DRAWN_BY, "Producer": None}}
    else:
        more = {"metadata": {"Title": title, "Software": DRAWN_BY}, "facecolor": "white"}
    with theme.themed():
        figure.savefig(drawn, format=extension, dpi=theme.DPI, **more)
    return drawn.getvalue()
