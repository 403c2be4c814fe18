"""From tables and figures to the content of a page: one section a question, each answer first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from detoklens.figures.registry import GLUE, PARTNERS, QUESTIONS
from detoklens.report.answers import answer
from detoklens.report.computing import Progress
from detoklens.report.content import Content, Download, Grid, PartnerIndex, Picture, Section
from detoklens.report.methods import computed, computed_for_the_paper
from detoklens.report.paper import against_the_paper
from detoklens.report.steps import STEPS
from detoklens.report.subject import Subject
from detoklens.report.wording import head_name, token_shown
from detoklens.tables.heads import HEADS
from detoklens.tables.schema import Schema

Tables = Mapping[str, pl.DataFrame]

LARGEST_CSV = 600_000  # characters of a table that lives in the page itself
LEXICON_ROWS = 12
SUMMARY = (
    "What does this layer attend to, and why? Read off its weights alone: attention scores are exactly the sum of six "
    "terms of tokens and positions. Tᵉᵉ, token with token, is the one that can put words together again."
)

SCHEMAS: dict[str, Schema] = {schema.name: schema for step in STEPS for schema in step.schemas}


def assemble(
    subject: Subject,
    tables: Tables,
    pictures: Sequence[Picture],
    passed: Sequence[Progress],
    folder: Path,
    partners: PartnerIndex | None,
) -> Content:
    """The whole content of a report."""
    sections = [_section(question, subject, tables, pictures) for question in QUESTIONS]
    paper = against_the_paper(tables, computed_for_the_paper(subject), _documents_counted(subject))
    return Content(
        title=f"The first attention layer of {_short_name(subject.layer.name)}",
        summary=SUMMARY,
        facts=_facts(subject),
        sections=[*sections, *([paper] if paper else [])],
        downloads=[download(SCHEMAS[name], frame, folder) for name, frame in tables.items()],
        partners=partners,
        notes=_notes(subject, passed),
    )


def _short_name(model: str) -> str:
    """A folder's own name; the name of a model on the hub, or of one that comes along, as it is."""
    return Path(model).resolve().name if Path(model).is_dir() else model


def _documents_counted(subject: Subject) -> int | None:
    return None if subject.counts is None else subject.counts.manifest.get("totals", {}).get("documents")


def _section(question: str, subject: Subject, tables: Tables, pictures: Sequence[Picture]) -> Section:
    grids = {GLUE: [_head_grid(tables)], PARTNERS: _lexicon_grids(tables)}.get(question, [])
    return Section(
        question,
        answer(question, tables),
        [picture for picture in pictures if picture.question == question],
        grids,
        computed(question, subject),
        has_search=question == PARTNERS,
    )


def _head_grid(tables: Tables) -> Grid:
    names = [column.name for column in HEADS.columns]
    rows = [(head_name(head), *rest) for head, *rest in tables["heads"].select(names).rows()]
    columns = [(column.name.replace("_", " "), column.meaning) for column in HEADS.columns]
    return Grid("Head cards; press a heading to sort by it", columns, rows, sortable=True)


def _lexicon_grids(tables: Tables) -> list[Grid]:
    """The strongest pairs of every head side by side: from weights alone."""
    if "lexicon" not in tables:
        return []
    lexicon = tables["lexicon"].filter(pl.col("rank") <= LEXICON_ROWS)
    heads = sorted(lexicon["head"].unique())
    joined = {(head, rank): text for head, rank, text in lexicon.select("head", "rank", "joined").rows()}
    ranks = range(1, min(LEXICON_ROWS, int(lexicon["rank"].max() or 0)) + 1)  # type: ignore[arg-type]
    rows = [(rank, *(_shown(joined.get((head, rank))) for head in heads)) for rank in ranks]
    columns = [("rank", "place among all pairs of the head")]
    columns += [(head_name(head), f"strongest pairs of head {head}, joined") for head in heads]
    return [Grid("The lexicon in the weights: each head's strongest pairs, joined", columns, rows)]


def _shown(text: str | None) -> str | None:
    return None if text is None else token_shown(text)


def _facts(subject: Subject) -> list[tuple[str, str]]:
    layer, counts = subject.layer, subject.counts
    return [
        ("Model", layer.name),
        ("Heads", f"{layer.n_heads} of {layer.d_head} dimensions"),
        ("Width", f"{layer.d_model}"),
        ("Vocabulary", f"{layer.vocab_size:,} tokens"),
        ("Positions", f"{layer.n_positions:,}"),
        ("Corpus", "none given" if counts is None else f"{int(counts.tokens.sum()):,} tokens counted"),
        ("Text", "none given" if not subject.documents else f"{len(subject.documents):,} documents"),
        ("Weights", f"sha256 {layer.fingerprint[:12]}…"),
    ]


def _notes(subject: Subject, passed: Sequence[Progress]) -> list[str]:
    notes = [f"{note[0].upper()}{note[1:]}." for note in subject.layer.notes]
    if subject.text_note:
        notes.append(subject.text_note)
    left_out = {need for progress in passed for need in progress.missing} - {"gpt2"}
    if "counts" in left_out:
        notes.append("No corpus counts were given (--counts or --corpus): what needs them is left out.")
    if "text" in left_out:
        notes.append("No text was given (--text): what is measured on text is left out.")
    return notes


def download(schema: Schema, frame: pl.DataFrame, folder: Path) -> Download:
    """A table to take away: inside the page where it is small."""
    path = folder / f"{schema.name}.csv"
    text = path.read_text(encoding="utf-8") if path.stat().st_size <= LARGEST_CSV else None
    return Download(schema.name, schema.question, len(frame), f"tables/{schema.name}.csv", text)
