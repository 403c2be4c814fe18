"""One report from beginning to end: answers, figures, the page, and where all of it comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from detoklens.model.first_blocks import refuse_layers
from detoklens.questions.store import labelled
from detoklens.report.answers import Asked, all_tables, ask_all
from detoklens.report.content import Computed, Content, Download, Grid, Part, Picture, Section
from detoklens.report.drawing import Drawing, Sketchbook, drawings
from detoklens.report.folder import PAGE, claim, column_guide, record
from detoklens.report.large_heads import LargeHead, heads_drawn_large, why_these
from detoklens.report.page import render_page
from detoklens.report.paper import numbers_of_the_paper
from detoklens.report.search_index import partner_index
from detoklens.report.sections import PAPER, SECTIONS
from detoklens.report.steps import Listener
from detoklens.tables.csv_text import csv_bytes
from detoklens.wording import head_name, sentence, token_shown
from detoklens.writing import write_whole

if TYPE_CHECKING:
    import polars as pl

    from detoklens.engines import Engine
    from detoklens.questions.question import View
    from detoklens.questions.study import Study
    from detoklens.tables.schema import Schema

KIND = "report"
LARGEST_CSV = 600_000  # bytes of a table that lives in the page itself
SHOWN_ROWS = 30  # of a table that the page folds away
LARGEST_PAGE = 14_500_000  # bytes, the search's data included; browsers open it and letters carry it
NUMBERS = {"learned": "six", "rotary": "four", "alibi": "three"}
SUMMARY = (
    "What does this layer attend to, and why? Read off its weights alone: attention scores are exactly the sum of "
    "{number} terms of tokens and positions. Tᵉᵉ, token with token, is the one that can put words together again."
)


def make_report(
    study: Study,
    folder: Path,
    width: str | float = "page",
    heads: Sequence[int] | None = None,
    listener: Listener | None = None,
    layers: int | None = None,
    engine: Engine | None = None,
) -> Path:
    """Write FOLDER/report.html with its tables/, figures/ and provenance.json; what is there already is kept.

    With `layers`, that many blocks of the real model are run too, which needs the extra `model`. Figures are drawn one
    after the other, or by the processes of an engine.
    """
    if layers is not None:
        refuse_layers(study.layer.checkpoint, layers)
    listener = listener or Listener()
    wanted = None if heads is None else [LargeHead(head, "asked for") for head in study.heads(heads)]
    claim(folder, KIND)
    asked = ask_all(study, folder / "tables", listener, layers=layers)
    large = heads_drawn_large(all_tables(asked)) if wanted is None else wanted
    planned = plan(asked, [each.head for each in large], study.layer.n_heads)
    with listener.step("Draw the figures") as watch:
        book = Sketchbook(folder / "figures", width)
        pictures = book.pictures([each for some in planned for each in some], engine, watch)
    content = _content(study, asked, planned, pictures, large)
    with listener.step("Find the partners of every token"):
        index = partner_index(study, LARGEST_PAGE - len(render_page(content).encode()))
    with listener.step("Write the page"):
        write_guide(folder, asked)
        write_whole(folder / PAGE, render_page(replace(content, partners=index)).encode())
    record(folder, KIND, [study], listener.passed)
    return folder / PAGE


def plan(asked: Sequence[Asked], chosen: Sequence[int], n_heads: int | None) -> list[list[Drawing]]:
    """The figures of each question that has an answer."""
    return [[] if each.answer is None else drawings(each.entry, each.answer, chosen, n_heads) for each in asked]


def write_guide(folder: Path, asked: Sequence[Asked]) -> None:
    """The README of the tables."""
    described = [
        (labelled(each.entry.label, each.entry.question, schema.name), schema, each.answer.tables[schema.name])
        for each in asked
        if each.answer is not None
        for schema in each.answer.schemas
    ]
    write_whole(folder / "tables" / "README.md", column_guide(described).encode())


def sections_of(
    asked: Sequence[Asked], planned: Sequence[Sequence[Drawing]], pictures: Mapping[str, Picture]
) -> list[Section]:
    """The sections of the page, each with the answers of its questions."""
    parts = [_part(each, drawn, pictures) for each, drawn in zip(asked, planned, strict=True)]
    found = [
        Section(
            section.title,
            [part for each, part in zip(asked, parts, strict=True) if each.section is section],
            section.has_search,
        )
        for section in SECTIONS
    ]
    return [section for section in found if section.parts]


def _part(asked: Asked, drawn: Sequence[Drawing], pictures: Mapping[str, Picture]) -> Part:
    answer = asked.answer
    if answer is None:
        return Part(left_out=asked.left_out)
    schemas = {column.name: column.meaning for schema in answer.schemas for column in schema.columns}
    return Part(
        answer.sentence,
        [pictures[drawing.name] for drawing in drawn if drawing.name in pictures],
        [grid_of(view, schemas) for view in answer.page_views],
        Computed(answer.command, answer.question.equation),
        not_drawn=[
            f"{drawing.title} is left out: {drawing.spec.why_empty}."
            for drawing in drawn
            if drawing.name not in pictures and not drawing.folded
        ],
    )


def grid_of(view: View, meanings: Mapping[str, str]) -> Grid:
    """A table for the page: as many rows as it shows, and the columns that hold something."""
    filled = [name for name in view.frame.columns if view.frame[name].count() or view.frame.is_empty()]
    frame = (view.frame if view.open else view.frame.head(SHOWN_ROWS)).select(filled)
    columns = [(name.replace("_", " "), meanings.get(name, name)) for name in frame.columns]
    rows = [tuple(_cell(name, cell) for name, cell in row.items()) for row in frame.iter_rows(named=True)]
    more = f" ({SHOWN_ROWS} of {len(view.frame):,} rows)" if len(frame) < len(view.frame) else ""
    return Grid(view.title + more, columns, rows, sortable=view.open, folded=not view.open)


def _cell(name: str, value: object) -> str | int | float | bool | None:
    if name == "head" and isinstance(value, int):
        return head_name(value)
    if not isinstance(value, str):
        return value  # type: ignore[return-value]
    return token_shown(value) if _holds_tokens(name) else token_shown(value).replace("␣", " ")


def _holds_tokens(column: str) -> bool:
    """Whether a column's text is of tokens, whose spaces must be seen."""
    return column.startswith("L0H") or column.endswith(("token", "text", "split", "joined"))


def _content(
    study: Study,
    asked: Sequence[Asked],
    planned: Sequence[Sequence[Drawing]],
    pictures: Mapping[str, Picture],
    large: Sequence[LargeHead],
) -> Content:
    sections, tables = sections_of(asked, planned, pictures), all_tables(asked)
    if sections[-1].title == PAPER.title:
        parts = [*sections[-1].parts, numbers_of_the_paper(tables, _documents_counted(study))]
        sections[-1] = Section(PAPER.title, parts)
    return Content(
        title=f"The first attention layer of {_short_name(study.layer.name)}",
        summary=SUMMARY.format(number=NUMBERS[study.layer.positions]),
        facts=_facts(study),
        sections=sections,
        downloads=downloads(asked),
        notes=_notes(study, asked, why_these(large, study.layer.n_heads)),
    )


def downloads(asked: Sequence[Asked]) -> list[Download]:
    """Every table to take away: inside the page where it is small."""
    return [
        _download(name, schema, asked_answer.tables[schema.name])
        for each in asked
        for asked_answer in ([each.answer] if each.answer is not None else [])
        for schema in asked_answer.schemas
        for name in [labelled(each.entry.label, each.entry.question, schema.name)]
    ]


def _download(name: str, schema: Schema, frame: pl.DataFrame) -> Download:
    content = csv_bytes(schema.conform(frame))
    text = content.decode() if len(content) <= LARGEST_CSV else None
    return Download(name, schema.question, len(frame), f"tables/{name}.csv", text)


def _documents_counted(study: Study) -> int | None:
    return None if study.counts is None else study.counts.manifest.get("totals", {}).get("documents")


def _short_name(model: str) -> str:
    """A folder's own name; the name of a model on the hub, or of one that comes along, as it is."""
    return Path(model).resolve().name if Path(model).is_dir() else model


def _facts(study: Study) -> list[tuple[str, str]]:
    layer, counts = study.layer, study.counts
    return [
        ("Model", _short_name(layer.name)),
        ("Heads", f"{layer.n_heads} of {layer.d_head} dimensions"),
        ("Width", f"{layer.d_model}"),
        ("Vocabulary", f"{layer.vocab_size:,} tokens"),
        ("Positions", f"{layer.n_positions:,}"),
        ("Corpus", "none given" if counts is None else f"{int(counts.tokens.sum()):,} tokens counted"),
        ("Text", f"{len(study.documents):,} documents" if study.has("text") else "none given"),
        ("Weights", f"sha256 {layer.fingerprint[:12]}…"),
    ]


def _notes(study: Study, asked: Sequence[Asked], why: str) -> list[str]:
    said = [*study.notes, *(note for each in asked if each.answer is not None for note in each.answer.notes), why]
    return [sentence(note) for note in dict.fromkeys(said)]
