"""Make a report: ask the questions, draw the figures, write the page and its provenance."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from detoklens.errors import MissingError
from detoklens.model.checks import refuse_layers
from detoklens.progress import Listener
from detoklens.questions.answer import Comparison
from detoklens.questions.parameters import to_cli_args
from detoklens.questions.study import Study
from detoklens.report.drawing import Drawing, draw_all, drawings, heads_drawn
from detoklens.report.folder import PAGE, REPORT, Asked, all_tables, ask_all, claim, column_guide, record
from detoklens.report.page import PIECES, Cell, Content, Download, Grid, Part, Picture, Unasked, render_page
from detoklens.report.search import example_word, partner_index
from detoklens.tables.files import csv_bytes
from detoklens.wording import head_name, plural, sentence, token_shown
from detoklens.writing import write_whole

if TYPE_CHECKING:
    from detoklens.engines import Engine
    from detoklens.questions.base import ReportEntry, View


KIND = REPORT
LARGEST_CSV = 600_000  # bytes of a table inside the page
SHOWN_ROWS = 30  # of a table in the appendix
LARGEST_PAGE = 14_500_000  # bytes including the search data; browsers open it and it fits an email
NUMBERS = {"learned": "six", "rotary": "four", "alibi": "three"}
SUMMARY = (
    "What the first layer attends to and why, computed from its weights. Each attention score is exactly a sum of "
    "{number} terms; Tᵉᵉ, the one that depends on both tokens, is the one that can detokenize."
)
TERMS = {
    "learned": "Tᵉ: of the key token alone. Tᵖ: of the key’s position alone; Tᵖᵖ: of both positions; Tᵖᵉ, Tᵉᵖ: mixed. "
    "The six add up to the score.",
    "rotary": "Tᵉ: of the key token alone. Tᵉᵖ: of the query token alone; Tᵖ: of the distance alone. "
    "The four add up to the score.",
    "alibi": "Tᵉ: of the key token alone. Tᵖ: of the distance alone. The three add up to the score.",
}
"""The other terms in the glossary, by kind of positions."""
UNASKED = {
    "counts": ("no corpus counts", ("--corpus", "TEXT")),
    "text": ("no text to measure attention on", ("--text", "TEXT")),
    "vocabulary": ("the model has no tokenizer; put its tokenizer.json next to the weights", ()),
    "position_table": ("the model has no position embeddings", None),
    "causal": ("the model's attention is not causal", None),
}
"""Why questions that need an input are not asked, and the report's options that would change it, if any."""


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

    With `layers`, that many blocks of the real model are run too, which needs the extra `model`. `heads` are drawn in
    the page's figures instead of those that the summaries name. An engine draws figures in parallel.
    """
    if layers is not None:
        refuse_layers(study.layer.checkpoint, layers)
    listener, chosen = listener or Listener(), None if heads is None else study.heads(heads)
    claim(folder, KIND)
    asked = ask_all(study, folder / "tables", listener, layers=layers)
    parts = draw_parts(asked, folder, width, listener, engine, chosen, study.layer.n_heads)
    name = study.layer.name if not Path(study.layer.name).is_dir() else Path(study.layer.name).resolve().name
    example = example_word(study)
    content = Content(
        title=f"The first attention layer of {name}",
        summary=SUMMARY.format(number=NUMBERS[study.layer.positions]),
        facts=_facts(study),
        parts=parts,
        unasked=_unasked(study, asked),
        downloads=downloads(asked),
        pieces=PIECES if example is None else [token_shown(study.layer.vocabulary.text(each)) for each in example[1]],
        terms=TERMS[study.layer.positions],
        notes=_notes(study, asked, name),
    )
    with listener.step("Rank the partners of every token"):
        index = partner_index(study, LARGEST_PAGE - len(render_page(content).encode()), example)
    with listener.step("Write the page"):
        write_page(folder, replace(content, partners=index), asked)
    record(folder, KIND, [study], listener.passed)
    return folder / PAGE


def write_page(folder: Path, content: Content, asked: Sequence[Asked]) -> None:
    """Write the README of the tables, and the page."""
    write_whole(folder / "tables" / "README.md", column_guide(all_tables(asked)).encode())
    write_whole(folder / PAGE, render_page(content).encode())


def draw_parts(
    asked: Sequence[Asked],
    folder: Path,
    width: str | float,
    listener: Listener,
    engine: Engine | None,
    heads: Sequence[int] | None = None,
    n_heads: int | None = None,
) -> list[Part]:
    """Draw the figures of all answers; the answers as the page shows them."""
    answered = [(each.entry, each.answer) for each in asked if each.answer is not None]
    sentences = [answer.sentence for entry, answer in answered if entry.headline]

    planned = []
    for entry, answer in answered:
        chosen = heads_drawn(answer.sentence, sentences, n_heads or 0) if heads is None else heads
        planned.append(drawings(entry, answer, chosen, n_heads))
    with listener.step("Draw the figures") as watch:
        figures = [each for drawn in planned for each in drawn]
        pictures = draw_all(figures, folder / "figures", width, engine, watch)
    return [
        _part(each, drawn, pictures)
        for each, drawn in zip([each for each in asked if each.answer is not None], planned, strict=True)
    ]


def _part(asked: Asked, drawn: Sequence[Drawing], pictures: Mapping[str, Picture]) -> Part:
    entry, answer = asked.entry, asked.answer
    assert answer is not None
    meanings = {column.name: column.meaning for schema in answer.schemas for column in schema.columns}
    verdicts = answer.verdicts if isinstance(answer, Comparison) else {"": answer.verdict}
    found = [pictures[drawing.name] for drawing in drawn if drawing.name in pictures]
    of_several = isinstance(answer, Comparison) and entry.figure is not None  # then always on the page itself
    on_page = 1 if entry.on_page or of_several else 0
    return Part(
        entry.question.report_section,
        entry.title,
        answer.sentence,
        {label: verdict for label, verdict in verdicts.items() if verdict is not None},
        entry.question.caveat,
        entry.headline,
        found[:on_page],
        found[on_page:],
        [grid_of(view, meanings) for view in answer.page_views],
        answer.command,
        answer.question.equation,
        [
            f"Figure omitted: {drawing.title} ({drawing.spec.why_empty})."
            for drawing in drawn
            if drawing.name not in pictures
        ],
    )


def grid_of(view: View, meanings: Mapping[str, str]) -> Grid:
    """A table for the page: its first rows, and the columns that have values."""
    filled = [name for name in view.frame.columns if view.frame[name].count() or view.frame.is_empty()]
    frame = (view.frame if view.open else view.frame.head(SHOWN_ROWS)).select(filled)
    columns = [(name.replace("_", " "), meanings.get(name, name)) for name in frame.columns]
    rows = [tuple(_cell(name, cell) for name, cell in row.items()) for row in frame.iter_rows(named=True)]
    more = f" ({SHOWN_ROWS} of {len(view.frame):,} rows)" if len(frame) < len(view.frame) else ""
    return Grid(view.title + more, columns, rows, view.open, view.notes)


def _cell(name: str, value: Cell) -> Cell:
    if name == "head" and isinstance(value, int):
        return head_name(value)
    if not isinstance(value, str):
        return value
    holds_tokens = name.startswith("L0H") or name.endswith(("token", "text", "split", "joined"))
    return token_shown(value) if holds_tokens else token_shown(value).replace("␣", " ")


def downloads(asked: Sequence[Asked]) -> list[Download]:
    """Every table as a download; small ones are inside the page."""
    found = []
    for name, (schema, frame) in all_tables(asked).items():
        content = csv_bytes(schema.conform(frame))
        text = content.decode() if len(content) <= LARGEST_CSV else None
        found.append(Download(name, sentence(schema.question), len(frame), f"tables/{name}.csv", text))
    return found


def _unasked(study: Study, asked: Sequence[Asked]) -> list[Unasked]:
    """The questions without an answer, by reason."""
    found: dict[tuple[str, str, bool], list[ReportEntry]] = {}
    places, answered = dict[tuple[str, str, bool], int](), 0
    again = ["detoklens", "report", *study.model_words, *study.counts_args, *to_cli_args(study.texts.in_a_file())]
    for each in asked:
        if isinstance(each.error, MissingError):
            reason, options = UNASKED[each.error.need]
            command = "" if options is None else shlex.join([*again, *options])
            key = reason, command, options is not None
        elif each.error is not None:
            key = str(each.error), study.command(each.entry.question), False
        else:
            answered += each.entry.headline
            continue
        found.setdefault(key, []).append(each.entry)
        places.setdefault(key, answered)
    unasked = []
    for key, entries in found.items():
        reason, command, is_input = key
        sections = dict.fromkeys(entry.question.report_section for entry in entries if entry.headline and is_input)
        unasked.append(Unasked([entry.title for entry in entries], reason, command, list(sections), places[key]))
    return unasked


def _facts(study: Study) -> list[tuple[str, str]]:
    layer, counts = study.layer, study.counts
    return [
        ("Heads", f"{layer.n_heads}, each of {layer.d_head} dimensions"),
        ("Width", f"{layer.d_model}"),
        ("Vocabulary", f"{layer.vocab_size:,} tokens"),
        ("Positions", f"{layer.n_positions:,}"),
        ("Corpus counts", "none" if counts is None else f"of {int(counts.tokens.sum()):,} tokens"),
        ("Attention measured on", plural(len(study.documents), "document") if study.has("text") else "no text"),
        ("Weights", f"sha256 {layer.fingerprint[:12]}…"),
    ]


def _notes(study: Study, asked: Sequence[Asked], name: str) -> list[str]:
    """All notes as sentences, with the model's name in place of its path."""
    path = re.compile(rf"(?<!\S){re.escape(study.layer.name)}(?![^\s:,;])")  # a word: the path may be "."
    notes = [*study.notes, *(note for each in asked if each.answer is not None for note in each.answer.notes)]
    return [sentence(path.sub(lambda _: name, note)) for note in dict.fromkeys(notes)]
