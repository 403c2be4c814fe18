"""Draws a report's figures, each once: SVG, PDF and PNG in a folder, and the SVG again for the page.

What a drawing depends on (its tables' contents, the heads, the width, the version) is hashed into `drawn.json` beside
the files; a figure whose hash is the same is read, not drawn again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from detoklens.figures.registry import FIGURES, FigureSpec
from detoklens.report.content import Picture
from detoklens.version import __version__

XML_DECLARATION_END = "?>\n"


@dataclass(frozen=True)
class Drawing:
    """One figure to draw: for some heads, or for all of them under another name."""

    spec: FigureSpec
    heads: tuple[int, ...] | None
    folded: bool

    @property
    def name(self) -> str:
        return f"{self.spec.name}_all_heads" if self.folded else self.spec.name

    @property
    def title(self) -> str:
        return f"{self.spec.title}, all heads" if self.folded else self.spec.title


def drawings(tables: Mapping[str, pl.DataFrame], chosen: Sequence[int], n_heads: int) -> list[Drawing]:
    """Which figures can be drawn? Those with a panel a head for the chosen heads and, folded away, for all."""
    planned = []
    for spec in FIGURES.values():
        if not spec.can_draw(tables) or any(tables[name].is_empty() for name in spec.tables):
            continue
        planned.append(Drawing(spec, tuple(chosen) if spec.per_head else None, folded=False))
        if spec.per_head and set(chosen) != set(range(n_heads)):
            planned.append(Drawing(spec, None, folded=True))
    return planned


class Sketchbook:
    """A folder of figures that remembers what each was drawn from."""

    def __init__(self, folder: Path, width: str | float) -> None:
        self._folder, self._width = folder, width
        self._memory = folder / "drawn.json"
        self._drawn: dict[str, str] = json.loads(self._memory.read_text()) if self._memory.is_file() else {}

    def picture(self, drawing: Drawing, tables: Mapping[str, pl.DataFrame]) -> Picture:
        """The figure for the page, drawn into the folder where it is not there yet."""
        wanted = self._fingerprint(drawing, tables)
        path = self._folder / f"{drawing.name}.svg"
        if self._drawn.get(drawing.name) != wanted or not path.is_file():
            self._draw(drawing, tables)
            self._remember(drawing.name, wanted)
        svg = for_page(path.read_text(encoding="utf-8"))
        return Picture(drawing.name, drawing.title, drawing.spec.caption, svg, drawing.folded)

    def _draw(self, drawing: Drawing, tables: Mapping[str, pl.DataFrame]) -> None:
        from detoklens.figures.save import save

        options = {} if drawing.heads is None else {"heads": list(drawing.heads)}
        figure = drawing.spec.draw(tables, width=self._width, **options)
        save(figure, self._folder, drawing.name, title=drawing.title, description=drawing.spec.caption)

    def _remember(self, name: str, fingerprint: str) -> None:
        self._drawn[name] = fingerprint
        partial = self._memory.with_name(".drawn.json.partial")
        partial.write_text(json.dumps(self._drawn, indent=1, sort_keys=True), encoding="utf-8")
        partial.replace(self._memory)

    def _fingerprint(self, drawing: Drawing, tables: Mapping[str, pl.DataFrame]) -> str:
        digest = hashlib.sha256(f"{__version__} {self._width} {drawing}".encode())
        for name in (*drawing.spec.tables, *drawing.spec.optional):
            if name in tables:
                digest.update(name.encode() + tables[name].hash_rows().to_numpy().tobytes())
        return digest.hexdigest()


def for_page(svg_file: str) -> str:
    """A figure's file as an element of a page: its ink takes the page's text colour."""
    from detoklens.figures.theme import INK

    return svg_file.partition(XML_DECLARATION_END)[2].strip().replace(f'"{INK}"', '"currentColor"')
