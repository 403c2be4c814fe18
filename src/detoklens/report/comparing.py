"""Several checkpoints side by side: the same analyses of each, their tables joined by a column `model`, one page."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import polars as pl

from detoklens.engines import Engine
from detoklens.figures.registry import COMPARISONS, GLUE, ODD, POSITION, QUESTIONS, TERMS
from detoklens.report.assembling import SCHEMAS, download
from detoklens.report.compared_answers import Compared, compared_answer
from detoklens.report.computing import Listener, Progress, compute, write_made
from detoklens.report.content import Cell, Computed, Content, Grid, Picture, Section
from detoklens.report.drawing import Drawing, Sketchbook
from detoklens.report.making import PAGE, PROVENANCE, claim, column_guide, provenance, timed
from detoklens.report.methods import computed
from detoklens.report.page import render_page
from detoklens.report.steps import STEPS
from detoklens.report.subject import Subject
from detoklens.report.wording import head_name
from detoklens.report.writing import write_whole
from detoklens.tables.provenance import Provenance
from detoklens.tables.schema import Column, Schema

KIND = "comparison"
COMPARED_STEPS = ("auroc", "auroc_pieces", "words", "positions", "shape", "variance", "contributions", "heads")
JOINED = (
    "heads",
    "auroc_by_head",
    "auroc_controls",
    "auroc_pieces_by_head",
    "auroc_pieces_controls",
    "words_by_head",
    "shape",
    "positions",
    "contributions_by_head",
    "position_variance",
)
ASKED = (GLUE, POSITION, TERMS, ODD)
MODEL = Column("model", pl.String, "label of the checkpoint")
QUANTITIES = {"p": "position alone (Tᵖ)", "attention": "attention by position alone"}
SUMMARY = "The first attention layers of several checkpoints side by side, each read off its weights alone."


def make_comparison(
    subjects: Mapping[str, Subject],
    folder: Path,
    width: str | float = "page",
    engine: Engine | None = None,
    listener: Listener | None = None,
) -> Path:
    """Write FOLDER/report.html that sets the subjects, by their labels, beside each other."""
    listener = listener or Listener()
    claim(folder, KIND)
    steps = [step for step in STEPS if step.name in COMPARED_STEPS]
    passed: list[Progress] = []
    by_model: dict[str, dict[str, pl.DataFrame]] = {}
    for label, subject in subjects.items():
        tables, went = compute(subject, folder / "models" / folder_name(label), engine, _named(listener, label), steps)
        by_model[label] = tables
        passed += went
    joined = _join(by_model, subjects, folder / "tables")
    compared = by_table(by_model)
    with timed("figures", "Draw the figures", listener, passed) as watch:
        pictures = Sketchbook(folder / "figures", width).pictures(plan(compared), compared, engine, watch)
    content = _content(subjects, compared, pictures, joined, folder)
    write_whole(folder / "tables" / "README.md", column_guide(joined).encode())
    write_whole(folder / PAGE, render_page(content).encode())
    write_whole(folder / PROVENANCE, provenance(KIND, list(subjects.values()), passed).encode())
    return folder / PAGE


def folder_name(label: str) -> str:
    """A folder for a label, whatever characters it has: its plain ones, and a hash that tells it from others."""
    plain = "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in label)[-40:]
    return f"{plain}-{hashlib.sha256(label.encode()).hexdigest()[:8]}"


def by_table(by_model: Mapping[str, Mapping[str, pl.DataFrame]]) -> dict[str, dict[str, pl.DataFrame]]:
    """Table by table, the models that have it with at least one row, in order."""
    names = dict.fromkeys(name for tables in by_model.values() for name in tables)
    found = {
        name: {label: tables[name] for label, tables in by_model.items() if name in tables and len(tables[name])}
        for name in names
    }
    return {name: tables for name, tables in found.items() if tables}


def plan(compared: Compared) -> list[Drawing]:
    """The figures that the tables allow; position's pull once for each quantity."""
    planned = []
    for spec in COMPARISONS.values():
        if not spec.can_draw(compared):
            continue
        if spec.name != "compare_positions":
            planned.append(Drawing(spec))
            continue
        planned += [
            Drawing(spec, (("quantity", quantity),), suffix=f"_{quantity}", remark=f": {words}")
            for quantity, words in QUANTITIES.items()
        ]
    return planned


def _named(listener: Listener, label: str) -> Listener:
    """The same listener, told the model's label before each step."""

    def end(went: Progress) -> None:
        listener.end(Progress(went.step, f"{label}: {went.title}", went.seconds, went.kept, went.missing))

    return Listener(lambda title: listener.begin(f"{label}: {title}"), end)


def _join(
    by_model: Mapping[str, Mapping[str, pl.DataFrame]], subjects: Mapping[str, Subject], folder: Path
) -> list[tuple[Schema, pl.DataFrame]]:
    """Each table once for all models, written with a provenance that names them all."""
    joined = []
    for name in JOINED:
        frames = [
            tables[name].select(pl.lit(label).alias("model"), pl.all())
            for label, tables in by_model.items()
            if name in tables
        ]
        if frames:
            schema = Schema(name, SCHEMAS[name].question, (MODEL, *SCHEMAS[name].columns))
            joined.append((schema, pl.concat(frames)))
    fingerprints = {label: subject.layer.fingerprint for label, subject in subjects.items()}
    write_made(folder, joined, Provenance("compare", ", ".join(subjects), "", None, fingerprints))
    return joined


def _content(
    subjects: Mapping[str, Subject],
    compared: Compared,
    pictures: list[Picture],
    joined: list[tuple[Schema, pl.DataFrame]],
    folder: Path,
) -> Content:
    return Content(
        title=f"The first attention layers of {len(subjects)} checkpoints",
        summary=SUMMARY,
        facts=[(label, _sizes(subject)) for label, subject in subjects.items()],
        sections=[_section(question, subjects, compared, pictures) for question in QUESTIONS if question in ASKED],
        downloads=[download(schema, frame, folder / "tables") for schema, frame in joined],
        notes=_notes(subjects),
    )


def _section(question: str, subjects: Mapping[str, Subject], compared: Compared, pictures: list[Picture]) -> Section:
    commands = [made for subject in subjects.values() for made in _computed(question, subject)]
    return Section(
        question,
        compared_answer(question, compared),
        [picture for picture in pictures if picture.question == question],
        [_cards(compared)] if question == GLUE else [],
        commands,
    )


def _computed(question: str, subject: Subject) -> list[Computed]:
    """The commands behind a question, of those analyses that are compared."""
    words = [(made, made.command.split()) for made in computed(question, subject)]
    return [made for made, command in words if command[1] in COMPARED_STEPS and "--roc" not in command]


def _cards(compared: Compared) -> Grid:
    """The head cards of all checkpoints in one table to sort."""
    names = [column.name for column in SCHEMAS["heads"].columns]
    rows: list[tuple[Cell, ...]] = [
        (label, head_name(head), *rest)
        for label, cards in compared["heads"].items()
        for head, *rest in cards.select(names).rows()
    ]
    columns = [("model", MODEL.meaning)]
    columns += [(column.name.replace("_", " "), column.meaning) for column in SCHEMAS["heads"].columns]
    return Grid("Head cards of all checkpoints; press a heading to sort by it", columns, rows, sortable=True)


def _sizes(subject: Subject) -> str:
    layer = subject.layer
    counted = "no counts" if subject.counts is None else f"{int(subject.counts.tokens.sum()):,} tokens counted"
    sizes = f"{layer.n_heads} heads of {layer.d_head}, {layer.vocab_size:,} tokens, {layer.n_positions:,} positions"
    return f"{sizes}; {counted}"


def _notes(subjects: Mapping[str, Subject]) -> list[str]:
    notes = [f"{label}: {note}." for label, subject in subjects.items() for note in subject.layer.notes]
    without = [label for label, subject in subjects.items() if subject.counts is None]
    if without:
        notes.append(f"Without counts, since none were given or another tokenizer made them: {', '.join(without)}.")
    texts = dict.fromkeys(subject.text_note for subject in subjects.values() if subject.text_note)
    return [*notes, *texts]
