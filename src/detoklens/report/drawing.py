"""Draws a report's figures: SVG, PDF and PNG in a folder, the SVG again for the page, and a narrow one for phones.

`drawn.json` next to the files keeps two hashes of each figure: of what it was drawn from (its tables' contents, the
heads, the width, the version) and of its files. A figure with the same hashes is read, not drawn again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from detoklens.engines import Engine
from detoklens.figures.spec import FigureSpec
from detoklens.progress import Watcher
from detoklens.questions.answer import labelled
from detoklens.questions.auroc.question import HeadJudgement, judge_heads
from detoklens.questions.heads.question import CLEARLY_ITSELF
from detoklens.questions.heatmap.question import MOST
from detoklens.questions.words.question import best_by_words, is_clearly_better
from detoklens.report.content import Picture
from detoklens.version import __version__
from detoklens.wording import head_name, listed, plural, signed
from detoklens.writing import make_folder, write_whole

if TYPE_CHECKING:
    from detoklens.questions.answer import Answer
    from detoklens.report.sections import Entry

    Tables = Mapping[str, pl.DataFrame]


FEWEST, LARGEST = 2, 3  # heads that are drawn large
CLEARLY_BY_FREQUENCY = 0.3  # Spearman's ρ
NEAR = ("previous token", "local", "self")  # classes of the table shape that are near the query


@dataclass(frozen=True)
class LargeHead:
    """A head that is drawn large, and what it does that others do less."""

    head: int
    why: str


def heads_drawn_large(tables: Tables) -> list[LargeHead]:
    """At most three heads that do something, each for another reason; at least two, where the model has so many."""
    chosen: dict[int, LargeHead] = {}
    for found in _that_do_something(tables):
        if len(chosen) < LARGEST:
            chosen.setdefault(found.head, found)
    for found in _nearest(tables):
        if len(chosen) < FEWEST:
            chosen.setdefault(found.head, found)
    return list(chosen.values())


def _that_do_something(tables: Tables) -> Iterator[LargeHead]:
    joins = _joining(tables)
    if joins is not None:
        yield joins
    cards = tables["heads"]
    yield from _most(cards, "self_match", CLEARLY_ITSELF, "looks most for the token itself: z {:.1f}")
    near = cards.filter(cards["position_class"].is_in(NEAR))
    yield from _most(near, "on_previous", 0.0, "looks near by position alone: {:.0%} on the token before")
    yield from _by_frequency(cards)
    if "heatmap_by_head" in tables:
        divided = tables["heatmap_by_head"].filter(layer_norm=True)
        yield from _most(divided, "same_keys", MOST, "prefers the same keys for all queries: {:.0%} of the variance")


def _by_frequency(cards: pl.DataFrame) -> Iterator[LargeHead]:
    ranked = cards.with_columns(strength=cards["frequency_spearman"].abs()).drop_nulls("strength")
    clearly = ranked.filter(ranked["strength"] >= CLEARLY_BY_FREQUENCY)
    for head, rho in _first(clearly, "strength", "frequency_spearman"):
        yield LargeHead(head, f"prefers {'rare' if rho < 0 else 'frequent'} tokens most: ρ {signed(rho)}")


def _joining(tables: Tables) -> LargeHead | None:
    """The lexical head for continuation tokens, else for all tokens; without a corpus, by words."""
    judged = _judged(tables)
    if judged:
        lexical = next((found for found in judged if found.level == "lexical"), None)
        return None if lexical is None else LargeHead(lexical.head, "detokenizes: its AUROC exceeds every null")
    best = best_by_words(tables["words_by_head"]) if "words_by_head" in tables else None
    if best is None or not is_clearly_better(best):
        return None
    return LargeHead(best["head"], "finds a word's piece before best")


def _judged(tables: Tables) -> list[HeadJudgement]:
    names = ("auroc_pieces_controls", "auroc_controls")
    return [found for name in names if name in tables for found in judge_heads(tables[name])[:1]]


def _nearest(tables: Tables) -> Iterator[LargeHead]:
    """What to draw where heads do little: the nearest to joining tokens, to looking for itself, then from the first."""
    for found in _judged(tables):
        yield LargeHead(found.head, "closest to exceeding its nulls, but not clearly above them")
    cards = tables["heads"]
    for head, _ in _first(cards.drop_nulls("self_match"), "self_match", "self_match"):
        yield LargeHead(head, "nearest to looking for the token itself, though not clearly")
    for head in cards["head"].sort():
        yield LargeHead(head, "the first of those that do none of this")


def _first(rows: pl.DataFrame, by: str, shown: str) -> Iterator[tuple[int, float]]:
    yield from rows.sort(by, descending=True, maintain_order=True).select("head", shown).head(1).iter_rows()


def _most(rows: pl.DataFrame, column: str, least: float, why: str) -> Iterator[LargeHead]:
    """The head with the largest value, where that is large enough."""
    known = rows.drop_nulls(column)
    for head, value in _first(known.filter(known[column] >= least), column, column):
        yield LargeHead(head, why.format(value).replace("%", " %"))


def why_these(large: Sequence[LargeHead], n_heads: int) -> str:
    """A note for the page."""
    named = listed([f"{head_name(each.head)} ({each.why})" for each in large])
    return f"of {plural(n_heads, 'head')} these are drawn large: {named}; all are below each figure, and in the tables"


Tables = Mapping[str, Any]
"""Tables by name; for a comparison, by name and then by the model's label."""

FORMATS = ("svg", "pdf", "png")
PHONE, PHONE_WIDTH = "phone.svg", "column"
"""How the file for phones ends, and how wide it is: a screen of 420 px shows its text at 10 to 12 px."""
XML_DECLARATION_END = "?>\n"
EMPTY = "nothing to draw: "  # before the fingerprint of a figure that shows no number


@dataclass(frozen=True)
class Drawing:
    """One figure to draw: for some heads, or for all of them under another name; with the tables it is drawn from."""

    spec: FigureSpec
    name: str
    title: str
    tables: Tables = field(repr=False)
    heads: tuple[int, ...] | None = None
    folded: bool = False

    def draw(self, width: str | float) -> Any:
        chosen = {} if self.heads is None else {"heads": list(self.heads)}
        return self.spec.draw(self.tables, width=width, **chosen)


def drawings(entry: Entry, answer: Answer, chosen: Sequence[int], n_heads: int | None) -> list[Drawing]:
    """The figures of an answer: those with a panel a head for the chosen heads and, folded away, for all."""
    planned = []
    for spec in answer.figures.values():
        name = labelled(entry.label, answer.question, spec.name)
        title, used = spec.title + entry.remark, _used(spec, answer.drawn_from)
        by_heads = spec.per_head and n_heads is not None
        planned.append(Drawing(spec, name, title, used, tuple(chosen) if by_heads else None))
        if by_heads and set(chosen) != set(range(n_heads or 0)):
            planned.append(Drawing(spec, f"{name}_all_heads", f"{title}, all heads", used, folded=True))
    return planned


@dataclass(frozen=True)
class DrawingTask:
    """All that a worker needs to draw one figure: its tables, no path and no state."""

    drawing: Drawing
    width: str | float
    formats: tuple[str, ...]


def draw_files(task: DrawingTask) -> dict[str, bytes]:
    """One figure as the content of its files, by their endings; none where it shows nothing.

    Pure, so that a process of an engine can do it.
    """
    from detoklens.figures.save import file_content
    from detoklens.figures.theme import is_empty

    drawing = task.drawing
    figure = drawing.draw(task.width)
    if is_empty(figure):
        return {}
    described = {"title": drawing.title, "description": drawing.spec.caption}
    files = {ending: file_content(figure, ending, drawing.name, **described) for ending in task.formats}
    phone = file_content(drawing.draw(PHONE_WIDTH), "svg", f"{drawing.name}_phone", **described)
    return files | {PHONE: phone}


class FigureCache:
    """A folder of figures that remembers what each was drawn from."""

    def __init__(self, folder: Path, width: str | float) -> None:
        make_folder(folder)
        self._folder, self._width = folder, width
        self._memory = folder / "drawn.json"
        self._drawn = _remembered(self._memory)
        self._found: dict[str, dict[str, bytes]] = {}

    def pictures(
        self, planned: Sequence[Drawing], engine: Engine | None = None, watch: Watcher | None = None
    ) -> dict[str, Picture]:
        """The figures for the page by name, empty ones left out; missing ones are drawn: on an engine, or here."""
        wanted = {drawing.name: self._fingerprint(drawing) for drawing in planned}
        self._drawn = {name: drawn for name, drawn in self._drawn.items() if name in wanted}
        missing = [drawing for drawing in planned if not self._has(drawing, wanted[drawing.name])]
        tasks = (DrawingTask(drawing, self._width, FORMATS) for drawing in missing)
        drawn = map(draw_files, tasks) if engine is None else engine.run(draw_files, tasks, ordered=True)
        for done, drawing in enumerate(missing):
            if watch is not None:
                watch(done, len(missing))
            self._keep(drawing, next(drawn), wanted[drawing.name])
        shown = [drawing for drawing in planned if self._found[drawing.name]]
        return {drawing.name: self._picture(drawing) for drawing in shown}

    def _has(self, drawing: Drawing, fingerprint: str) -> bool:
        """Whether the figure's files are there, drawn from the same and unchanged since; they are read once."""
        drawn = self._drawn.get(drawing.name)
        files = {} if drawn == _drawn_as(fingerprint, {}) else self._read(drawing)
        if files is None or drawn != _drawn_as(fingerprint, files):
            return False
        self._found[drawing.name] = files
        return True

    def _read(self, drawing: Drawing) -> dict[str, bytes] | None:
        try:
            return {ending: self._path(drawing, ending).read_bytes() for ending in (*FORMATS, PHONE)}
        except OSError:
            return None

    def _keep(self, drawing: Drawing, files: Mapping[str, bytes], fingerprint: str) -> None:
        for ending, content in files.items():
            write_whole(self._path(drawing, ending), content)
        self._found[drawing.name] = dict(files)
        self._drawn[drawing.name] = _drawn_as(fingerprint, files)
        write_whole(self._memory, _as_json(self._drawn))

    def _path(self, drawing: Drawing, ending: str) -> Path:
        return self._folder / f"{drawing.name}.{ending}"

    def _picture(self, drawing: Drawing) -> Picture:
        svg, phone = (for_page(self._found[drawing.name][ending].decode()) for ending in ("svg", PHONE))
        return Picture(drawing.name, drawing.title, drawing.spec.caption, svg, phone, drawing.folded)

    def _fingerprint(self, drawing: Drawing) -> str:
        digest = hashlib.sha256(f"{__version__} {self._width} {drawing}".encode())
        for name, frame in drawing.tables.items():
            digest.update(name.encode() + _content(frame))
        return digest.hexdigest()


def _used(spec: FigureSpec, tables: Tables) -> dict[str, Any]:
    return {name: tables[name] for name in (*spec.tables, *spec.optional) if name in tables}


def _content(frame: pl.DataFrame | Mapping[str, pl.DataFrame]) -> bytes:
    """Something that differs when a cell, a column's name or its type does, or a model's label."""
    if isinstance(frame, Mapping):
        return b"".join(label.encode() + b"\0" + _content(each) for label, each in frame.items())
    return str(frame.schema).encode() + frame.hash_rows().to_numpy().tobytes()


def _drawn_as(fingerprint: str, files: Mapping[str, bytes]) -> str:
    """What is remembered of a figure: what it was drawn from, and the hash of its files; no hash where it is empty."""
    digest = hashlib.sha256()
    for ending in sorted(files):
        digest.update(f"{ending} {len(files[ending])} ".encode() + files[ending])
    return EMPTY + fingerprint if not files else f"{fingerprint} {digest.hexdigest()}"


def _as_json(drawn: Mapping[str, str]) -> bytes:
    return json.dumps(drawn, indent=1, sort_keys=True).encode()


def _remembered(path: Path) -> dict[str, str]:
    """What was drawn before; nothing where the file is missing or damaged."""
    try:
        content = path.read_bytes()
        drawn = dict(json.loads(content))
    except (OSError, ValueError, TypeError, RecursionError):
        return {}
    return drawn if _as_json(drawn) == content else {}


def for_page(svg_file: str) -> str:
    """A figure's file as an element of a page: its ink takes the page's text colour."""
    from detoklens.figures.theme import INK

    return svg_file.partition(XML_DECLARATION_END)[2].strip().replace(f'"{INK}"', '"currentColor"')
