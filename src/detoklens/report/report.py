"""Make a report: ask the questions, draw the figures, write the page and its provenance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from detoklens.model.first_blocks import refuse_layers
from detoklens.questions.answer import Comparison, labelled
from detoklens.report.content import Cell, Computed, Content, Download, Grid, Listener, Part, Picture, Section
from detoklens.report.drawing import Drawing, FigureCache, LargeHead, drawings, heads_drawn_large, why_these
from detoklens.report.folder import PAGE, Asked, all_tables, ask_all, claim, column_guide, record
from detoklens.report.page import partner_index, render_page
from detoklens.report.sections import PAPER, SECTIONS
from detoklens.tables.files import csv_bytes
from detoklens.wording import head_name, sentence, token_shown
from detoklens.writing import write_whole

if TYPE_CHECKING:
    from detoklens.engines import Engine
    from detoklens.questions.base import View
    from detoklens.questions.study import Study
    from detoklens.tables.schema import Schema


Tables = Mapping[str, pl.DataFrame]
Row = tuple[str, float | None, float | None, str]

CORPUS = "yes: the paper counted OpenWebText"
WEIGHTS = "no: weights alone"
SAMPLE = "no, but the paper's sample of tokens is unknown"
MATCHING_HEAD, DETOKENIZING_HEAD = 1, 7  # the heads that the paper discusses


def numbers_of_the_paper(tables: Tables, documents: int | None = None) -> Part:
    """Compare the paper's numbers with ours; `documents` is the size of the corpus, if known."""
    numbers = list(_numbers(tables, documents))
    return Part(f"{len(numbers)} numbers from the paper's text, compared with ours.", grids=[_number_grid(numbers)])


def _numbers(tables: Tables, documents: int | None) -> Iterator[Row]:
    summary = tables["heatmap_by_head"].filter(layer_norm=True)
    for head, (low, high) in ((MATCHING_HEAD, (-47, 127)), (DETOKENIZING_HEAD, (-35, 31))):
        row = summary.filter(head=head).row(0, named=True)
        yield (f"smallest Tᵉᵉ of sampled tokens, L0H{head}", low, row["minimum"], SAMPLE)
        yield (f"largest Tᵉᵉ of sampled tokens, L0H{head}", high, row["maximum"], SAMPLE)
    if "auroc_by_head" in tables:
        best = tables["auroc_by_head"].sort("seen", descending=True)["head"][0]
        yield ("head with the largest mean AUROC", DETOKENIZING_HEAD, best, CORPUS)
    by_head = tables["frequency_by_head"]
    for head, paper in ((DETOKENIZING_HEAD, -0.68), (MATCHING_HEAD, -0.31)):
        ours = by_head.filter(head=head)["spearman"][0]
        yield (f"Spearman of Tᵉ with token frequency, L0H{head}", paper, ours, CORPUS)
    variance = tables["embedding_variance"].row(0, named=True)
    yield ("Spearman of Var(e) with token frequency", -0.63, variance["spearman"], CORPUS)
    yield ("variance of the token embeddings' norms", 0.19, variance["norm_variance"], WEIGHTS)
    yield ("the same after division by the standard deviation", 0.0, variance["divided_norm_variance"], WEIGHTS)
    yield ("mean Var(e) over mean |Cov(e, p)|", 46, variance["variance_to_covariance"], WEIGHTS)
    position = tables["position_variance"].sort("position")["variance"]
    median = float(position.median() or 0.0)  # type: ignore[arg-type]
    for name, value in (("first: exceptionally large", position[0]), ("last: exceptionally small", position[-1])):
        yield (f"Var(p) over its median, {name} in the paper", None, value / median if median else None, WEIGHTS)
    if "auroc_by_token" in tables:
        yield ("documents counted", 8_013_769, documents, CORPUS)
        yield ("tokens counted", 9.03e9, int(tables["frequency_by_token"]["count"].sum()), CORPUS)
        bigrams = int(tables["auroc_by_token"].filter(head=0)["positives"].sum())
        yield ("distinct bigrams counted", 137e6, bigrams, CORPUS)


def _number_grid(numbers: list[Row]) -> Grid:
    columns = [
        ("number", "what is compared"),
        ("paper", "as the paper prints it"),
        ("here", "computed here"),
        ("difference", "here minus paper"),
        ("depends on the corpus", "whether another corpus would change the number"),
    ]
    rows: list[tuple[Cell, ...]] = [
        (name, paper, ours, None if ours is None or paper is None else ours - paper, depends)
        for name, paper, ours, depends in numbers
    ]
    return Grid("Numbers from the paper's text", columns, rows)


KIND = "report"
LARGEST_CSV = 600_000  # bytes of a table inside the page
SHOWN_ROWS = 30  # of a collapsed table
LARGEST_PAGE = 14_500_000  # bytes including the search data; browsers open it and it fits an email
NUMBERS = {"learned": "six", "rotary": "four", "alibi": "three"}
SUMMARY = (
    "What the first layer attends to and why, computed from its weights. Attention scores are exactly the sum of "
    "{number} terms of tokens and positions; Tᵉᵉ, token with token, is the one that can detokenize."
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
    """Write FOLDER/report.html with tables/, figures/ and provenance.json; finished answers and figures are reused.

    With `layers`, that many blocks of the real model are run too, which needs the extra `model`. An engine draws
    figures in parallel.
    """
    if layers is not None:
        refuse_layers(study.layer.checkpoint, layers)
    listener = listener or Listener()
    wanted = None if heads is None else [LargeHead(head, "requested") for head in study.heads(heads)]
    claim(folder, KIND)
    asked = ask_all(study, folder / "tables", listener, layers=layers)
    large = heads_drawn_large(all_tables(asked)) if wanted is None else wanted
    planned = plan(asked, [each.head for each in large], study.layer.n_heads)
    with listener.step("Draw the figures") as watch:
        book = FigureCache(folder / "figures", width)
        pictures = book.pictures([each for some in planned for each in some], engine, watch)
    content = _content(study, asked, planned, pictures, large)
    with listener.step("Rank the partners of every token"):
        index = partner_index(study, LARGEST_PAGE - len(render_page(content).encode()))
    with listener.step("Write the page"):
        write_guide(folder, asked)
        write_whole(folder / PAGE, render_page(replace(content, partners=index)).encode())
    record(folder, KIND, [study], listener.passed)
    return folder / PAGE


def plan(asked: Sequence[Asked], chosen: Sequence[int], n_heads: int | None) -> list[list[Drawing]]:
    """The figures of each question."""
    return [[] if each.answer is None else drawings(each.entry, each.answer, chosen, n_heads) for each in asked]


def write_guide(folder: Path, asked: Sequence[Asked]) -> None:
    """Write the README of the tables."""
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
    """The sections of the page with their answers."""
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
    meanings = {column.name: column.meaning for schema in answer.schemas for column in schema.columns}
    verdicts = answer.verdicts if isinstance(answer, Comparison) else {"": answer.verdict}
    return Part(
        answer.sentence,
        {label: verdict for label, verdict in verdicts.items() if verdict is not None},
        [pictures[drawing.name] for drawing in drawn if drawing.name in pictures],
        [grid_of(view, meanings) for view in answer.page_views],
        Computed(answer.command, answer.question.equation),
        not_drawn=[
            f"Figure omitted: {drawing.title} ({drawing.spec.why_empty})."
            for drawing in drawn
            if drawing.name not in pictures and not drawing.folded
        ],
    )


def grid_of(view: View, meanings: Mapping[str, str]) -> Grid:
    """A table for the page: its first rows, and the columns that have values."""
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
    """Whether a column holds token text, whose spaces are shown."""
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
        counted = {} if study.counts is None else study.counts.manifest.get("totals", {})
        parts = [*sections[-1].parts, numbers_of_the_paper(tables, counted.get("documents"))]
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
    """Every table as a download; small ones are inside the page."""
    return [
        _download(name, schema, each.answer.tables[schema.name])
        for each in asked
        if each.answer is not None
        for schema in each.answer.schemas
        for name in [labelled(each.entry.label, each.entry.question, schema.name)]
    ]


def _download(name: str, schema: Schema, frame: pl.DataFrame) -> Download:
    content = csv_bytes(schema.conform(frame))
    text = content.decode() if len(content) <= LARGEST_CSV else None
    return Download(name, sentence(schema.question), len(frame), f"tables/{name}.csv", text)


def _short_name(model: str) -> str:
    """The last part of a local path; names of hub models and of the demo are unchanged."""
    return Path(model).resolve().name if Path(model).is_dir() else model


def _facts(study: Study) -> list[tuple[str, str]]:
    layer, counts = study.layer, study.counts
    return [
        ("Model", _short_name(layer.name)),
        ("Heads", f"{layer.n_heads} of {layer.d_head} dimensions"),
        ("Width", f"{layer.d_model}"),
        ("Vocabulary", f"{layer.vocab_size:,} tokens"),
        ("Positions", f"{layer.n_positions:,}"),
        ("Corpus", "none" if counts is None else f"{int(counts.tokens.sum()):,} tokens counted"),
        ("Text", f"{len(study.documents):,} documents" if study.has("text") else "none"),
        ("Weights", f"sha256 {layer.fingerprint[:12]}…"),
    ]


def _notes(study: Study, asked: Sequence[Asked], why: str) -> list[str]:
    said = [*study.notes, *(note for each in asked if each.answer is not None for note in each.answer.notes), why]
    return [sentence(note) for note in dict.fromkeys(said)]
