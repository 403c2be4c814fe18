"""A figure as files: SVG and PDF with text as text, PNG, each written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from detoklens.figures import theme
from detoklens.figures.svg import svg_file_text

FORMATS = ("svg", "pdf", "png")


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
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for extension in formats:
        if extension == "svg":
            content = svg_file_text(figure, name, title, description).encode()
        else:
            content = _rendered(figure, extension, title)
        path = folder / f"{name}.{extension}"
        _write_whole(path, content)
        paths.append(path)
    return paths


def _rendered(figure: Figure, extension: str, title: str) -> bytes:
    drawn = BytesIO()
    more: dict[str, Any]
    if extension == "pdf":
        more = {"metadata": {"Title": title, "CreationDate": None, "Creator": None, "Producer": None}}
    else:
        more = {"metadata": {"Title": title, "Software": None}, "facecolor": "white"}
    with theme.themed():
        figure.savefig(drawn, format=extension, dpi=theme.DPI, **more)
    return drawn.getvalue()


def _write_whole(path: Path, content: bytes) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_bytes(content)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
