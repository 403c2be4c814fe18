"""The figures of a report: which heads they show, and a cache of SVG, PDF and PNG files.

`drawn.json` next to the files keeps two hashes per figure: of its inputs (tables, heads, width, version) and of its
files. A figure with the same hashes is reused.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from detoklens.engines import Engine
from detoklens.figures.save import file_content, for_page
from detoklens.figures.spec import FigureSpec
from detoklens.figures.theme import is_empty
from detoklens.progress import Watcher, unwatched
from detoklens.questions.store import labelled
from detoklens.report.page import Picture
from detoklens.version import __version__
from detoklens.writing import make_folder, write_whole

if TYPE_CHECKING:
    from detoklens.questions.answer import Answer
    from detoklens.questions.base import ReportEntry


FEWEST_DRAWN = 2  # heads that a figure with one panel per head shows
_HEAD = re.compile(r"\bL0H(\d+)\b")


def heads_drawn(sentence: str, others: Sequence[str], n_heads: int) -> tuple[int, ...]:
    """The heads that a summary names, so that readers see them; if they are few, some of the other summaries."""
    own, more = ([int(head) for head in _HEAD.findall(text)] for text in (sentence, " ".join(others)))
    known = [head for head in dict.fromkeys([*own, *more, *range(n_heads)]) if head < n_heads]
    return tuple(known[: max(FEWEST_DRAWN, len(set(own)))])


Tables = Mapping[str, Any]
"""Tables by name; in a comparison, by name and then by model label."""

FORMATS = ("svg", "pdf", "png")
PHONE, PHONE_WIDTH = "phone.svg", "column"
"""Extension and width of the figure for narrow screens: 420 px show its text at 10 to 12 px."""


@dataclass(frozen=True)
class Drawing:
    """One figure to draw: its spec, its tables, and the heads it shows (None for all)."""

    spec: FigureSpec
    name: str
    title: str
    tables: Tables = field(repr=False)
    heads: tuple[int, ...] | None = None

    def draw(self, width: str | float) -> Any:
        chosen = {} if self.heads is None else {"heads": list(self.heads)}
        return self.spec.draw(self.tables, width=width, **chosen)


def drawings(entry: ReportEntry, answer: Answer, chosen: Sequence[int], n_heads: int | None) -> list[Drawing]:
    """The figures of an answer, the one on the page first.

    If that one has a panel per head, it shows the chosen heads, and the appendix all heads. Other figures show all.
    """
    specs = sorted(answer.figures.values(), key=lambda spec: spec.name != entry.figure)
    planned = []
    for spec in specs:
        name, title = labelled(entry.label, answer.question, spec.name), spec.title + entry.remark
        used = {
            table: answer.drawn_from[table] for table in (*spec.tables, *spec.optional) if table in answer.drawn_from
        }
        by_heads = entry.on_page and spec is specs[0] and spec.per_head and n_heads is not None
        planned.append(Drawing(spec, name, title, used, tuple(chosen) if by_heads else None))
        if by_heads and len(chosen) < (n_heads or 0):
            planned.append(Drawing(spec, f"{name}_all_heads", f"{title}, all heads", used))
    return planned


def draw_files(drawing: Drawing, width: str | float, formats: Sequence[str]) -> dict[str, bytes]:
    """Draw a figure and return the content of its files by extension; empty if it has no data."""
    figure = drawing.draw(width)
    if is_empty(figure):
        return {}
    described = {"title": drawing.title, "description": drawing.spec.caption}
    files = {ending: file_content(figure, ending, drawing.name, **described) for ending in formats}
    phone = file_content(drawing.draw(PHONE_WIDTH), "svg", f"{drawing.name}_phone", **described)
    return files | {PHONE: phone}


def draw_all(
    planned: Sequence[Drawing],
    folder: Path,
    width: str | float,
    engine: Engine | None = None,
    watch: Watcher = unwatched,
) -> dict[str, Picture]:
    """The figures for the page by name, without empty ones; those that the folder lacks are drawn into it."""
    make_folder(folder)
    memory, files = folder / "drawn.json", dict[str, dict[str, bytes]]()
    remembered = _remembered(memory)
    fingerprints = {drawing.name: _fingerprint(drawing, width) for drawing in planned}
    for name in fingerprints.keys() & remembered.keys():
        for found in ({}, _stored(folder, name)):  # a figure without data has no files
            if remembered[name] == _as_drawn(fingerprints[name], found):
                files[name] = found
    drawn = {name: remembered[name] for name in files}
    missing = [drawing for drawing in planned if drawing.name not in files]
    draw = partial(_draw_named, partial(draw_files, width=width, formats=FORMATS))
    results = map(draw, missing) if engine is None else engine.run(draw, missing)
    for done in range(len(missing)):
        watch(done, len(missing))
        name, drawn_files = next(results)
        files[name] = drawn_files
        for ending, content in files[name].items():
            write_whole(folder / f"{name}.{ending}", content)
        drawn[name] = _as_drawn(fingerprints[name], files[name])
        write_whole(memory, _as_json(drawn))
    return {
        drawing.name: Picture(
            drawing.name,
            drawing.title,
            drawing.spec.caption,
            *(for_page(files[drawing.name][ending].decode()) for ending in ("svg", PHONE)),
        )
        for drawing in planned
        if files[drawing.name]
    }


def _draw_named(draw: Callable[[Drawing], dict[str, bytes]], drawing: Drawing) -> tuple[str, dict[str, bytes]]:
    return drawing.name, draw(drawing)


def _stored(folder: Path, name: str) -> dict[str, bytes]:
    """A figure's files by extension; none if one is missing."""
    try:
        return {ending: (folder / f"{name}.{ending}").read_bytes() for ending in (*FORMATS, PHONE)}
    except OSError:
        return {}


def _fingerprint(drawing: Drawing, width: str | float) -> str:
    digest = hashlib.sha256(f"{__version__} {width} {drawing}".encode())
    for name, frame in drawing.tables.items():
        digest.update(name.encode() + _content(frame))
    return digest.hexdigest()


def _content(frame: pl.DataFrame | Mapping[str, pl.DataFrame]) -> bytes:
    """Bytes that differ if a cell, a column's name or type, or a model's label differs."""
    if isinstance(frame, Mapping):
        return b"".join(label.encode() + b"\0" + _content(each) for label, each in frame.items())
    return str(frame.schema).encode() + frame.hash_rows().to_numpy().tobytes()


def _as_drawn(fingerprint: str, files: Mapping[str, bytes]) -> str:
    """What `drawn.json` keeps of a figure: the fingerprint of its inputs and the hash of its files."""
    digest = hashlib.sha256()
    for ending in sorted(files):
        digest.update(f"{ending} {len(files[ending])} ".encode() + files[ending])
    return f"{fingerprint} {digest.hexdigest()}"


def _as_json(drawn: Mapping[str, str]) -> bytes:
    return json.dumps(drawn, indent=1, sort_keys=True).encode()


def _remembered(path: Path) -> dict[str, str]:
    """What was drawn before; empty if the file is missing or damaged."""
    try:
        content = path.read_bytes()
        drawn = dict(json.loads(content))
    except (OSError, ValueError, TypeError, RecursionError):
        return {}
    return drawn if _as_json(drawn) == content else {}
