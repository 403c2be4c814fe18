"""The figure class: it displays itself in a notebook and saves itself so that text and symbols stay legible."""

from __future__ import annotations

from typing import Any

import matplotlib
from matplotlib.figure import Figure

from detoklens.figures.save import svg_file_text
from detoklens.figures.theme import use_mathtext


class ShownFigure(Figure):
    """A figure that displays itself in a notebook; saved as PDF it has TrueType fonts, as PNG a white background."""

    def _repr_svg_(self) -> str:
        return svg_file_text(self, "figure")

    def savefig(self, fname: Any, **options: Any) -> None:
        with matplotlib.rc_context({"pdf.fonttype": 42, "ps.fonttype": 42}):
            if "svg" in (options.get("format"), str(fname)[-3:]):  # mathtext would split SVG text into letters
                super().savefig(fname, **options)
                return
            if "png" in (options.get("format", "png"), str(fname)[-3:]) and not options.get("transparent"):
                options.setdefault("facecolor", "white")  # dark ink is unreadable in a viewer with a dark background
            undo = use_mathtext(self, self.axes)  # whose superscripts are legible at 7 points
            try:
                super().savefig(fname, **options)
            finally:
                undo()
