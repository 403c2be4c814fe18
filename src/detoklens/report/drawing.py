"""Draws a report's figures, each once: SVG, PDF and PNG in a folder, and the SVG again for the page.

What a drawing depends on (its tables' contents, the heads, the width, the version) is hashed into `drawn.json` beside
the files; a figure whose hash is the same is read, not drawn again.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from detoklens.analyses.watching import Watcher
from detoklens.engines import Engine
from detoklens.figures.registry import FIGURES, FigureSpec
from detoklens.report.content import Picture
from detoklens.report.writing import write_whole
from detoklens.version import __version__

Tables = Mapping[str, Any]
"""Tables by name; for a comparison, by name and then by the model's label."""

FORMATS = ("svg", "pdf", "png")
XML_DECLARATION_END = "?>\n"


@dataclass(frozen=True)
class Drawing:
    """One figure to draw: for some heads, or for all of them under another name."""

    spec: FigureSpec
    options: tuple[tuple[str, Any], ...] = ()
    folded: bool = False
    suffix: str = ""
    remark: str = ""

    @property
    def name(self) -> str:
        return self.spec.name + self.suffix

    @property
    def title(self) -> str:
        return self.spec.title + self.remark


def drawings(tables: Tables, chosen: Sequence[int], n_heads: int) -> list[Drawing]:
    """Which figures can be drawn? Those with a panel a head for the chosen heads and, folded away, for all."""
    planned = []
    for spec in FIGURES.values():
        if not spec.can_draw(tables) or any(tables[name].is_empty() for name in spec.tables):
            continue
        planned.append(Drawing(spec, (("heads", tuple(chosen)),) if spec.per_head else ()))
        if spec.per_head and set(chosen) != set(range(n_heads)):
            planned.append(Drawing(spec, folded=True, suffix="_all_heads", remark=", all heads"))
    return planned


@dataclass(frozen=True)
class DrawingTask:
    """All that a worker needs to draw one figure: its tables, no path and no state."""

    drawing: Drawing
    tables: Tables
    width: str | float
    formats: tuple[str, ...]


def draw_files(task: DrawingTask) -> dict[str, bytes]:
    """One figure as the content of its files, by their endings. Pure, so that any process of an engine can do it."""
    from detoklens.figures.save import save

    drawing = task.drawing
    figure = drawing.spec.draw(task.tables, width=task.width, **dict(drawing.options))
    with tempfile.TemporaryDirectory() as folder:
        described = {"title": drawing.title, "description": drawing.spec.caption}
        paths = save(figure, Path(folder), drawing.name, **described, formats=task.formats)
        return {path.suffix[1:]: path.read_bytes() for path in paths}


class Sketchbook:
    """A folder of figures that remembers what each was drawn from."""

    def __init__(self, folder: Path, width: str | float) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._width = folder, width
        self._memory = folder / "drawn.json"
        self._drawn = _remembered(self._memory)

    def pictures(
        self,
        planned: Sequence[Drawing],
        tables: Tables,
        engine: Engine | None = None,
        watch: Watcher | None = None,
    ) -> list[Picture]:
        """The figures for the page in the order of the plan; those that are not there yet are drawn, by the engine."""
        wanted = {drawing.name: self._fingerprint(drawing, tables) for drawing in planned}
        missing = [drawing for drawing in planned if not self._has(drawing, wanted[drawing.name])]
        tasks = (DrawingTask(drawing, _used(drawing.spec, tables), self._width, FORMATS) for drawing in missing)
        drawn = map(draw_files, tasks) if engine is None else engine.run(draw_files, tasks, ordered=True)
        for done, drawing in enumerate(missing):
            if watch is not None:
                watch(done, len(missing))
            self._keep(drawing, next(drawn), wanted[drawing.name])
        return [self._picture(drawing) for drawing in planned]

    def _has(self, drawing: Drawing, fingerprint: str) -> bool:
        there = all((self._folder / f"{drawing.name}.{ending}").is_file() for ending in FORMATS)
        return there and self._drawn.get(drawing.name) == fingerprint

    def _keep(self, drawing: Drawing, files: Mapping[str, bytes], fingerprint: str) -> None:
        for ending, content in files.items():
            write_whole(self._folder / f"{drawing.name}.{ending}", content)
        self._drawn[drawing.name] = fingerprint
        write_whole(self._memory, json.dumps(self._drawn, indent=1, sort_keys=True).encode())

    def _picture(self, drawing: Drawing) -> Picture:
        svg = for_page((self._folder / f"{drawing.name}.svg").read_text(encoding="utf-8"))
        return Picture(drawing.name, drawing.title, drawing.spec.caption, svg, drawing.spec.question, drawing.folded)

    def _fingerprint(self, drawing: Drawing, tables: Tables) -> str:
        digest = hashlib.sha256(f"{__version__} {self._width} {drawing}".encode())
        for name, frame in _used(drawing.spec, tables).items():
            digest.update(name.encode() + _content(frame))
        return digest.hexdigest()


def _used(spec: FigureSpec, tables: Tables) -> dict[str, Any]:
    return {name: tables[name] for name in (*spec.tables, *spec.optional) if name in tables}


def _content(frame: pl.DataFrame | Mapping[str, pl.DataFrame]) -> bytes:
    """Something that differs when a cell, a column's name or its type does, or a model's label."""
    if isinstance(frame, Mapping):
        return b"".join(label.encode() + b"\0" + _content(each) for label, each in frame.items())
    return str(frame.schema).encode() + frame.hash_rows().to_numpy().tobytes()


def _remembered(path: Path) -> dict[str, str]:
    """What was drawn before; nothing where the file is missing or broken."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return {}


def for_page(svg_file: str) -> str:
    """A figure's file as an element of a page: its ink takes the page's text colour."""
    from detoklens.figures.theme import INK

    return svg_file.partition(XML_DECLARATION_END)[2].strip().replace(f'"{INK}"', '"currentColor"')
