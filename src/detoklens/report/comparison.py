"""Compare checkpoints: ask each the same questions, join their tables by a column `model`, write one page."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from detoklens.progress import Listener
from detoklens.questions.answer import side_by_side
from detoklens.report.folder import COMPARISON, PAGE, Asked, ReportStore, ask_all, claim, record
from detoklens.report.page import Content
from detoklens.report.report import TERMS, downloads, draw_parts, write_page
from detoklens.wording import sentence

if TYPE_CHECKING:
    from detoklens.engines import Engine
    from detoklens.questions.study import Study

KIND = COMPARISON
SUMMARY = "The first attention layers of several checkpoints, compared by their weights."


def make_comparison(
    studies: Mapping[str, Study],
    folder: Path,
    width: str | float = "page",
    listener: Listener | None = None,
    engine: Engine | None = None,
) -> Path:
    """Write FOLDER/report.html, which compares the models by label. An engine draws figures in parallel."""
    listener = listener or Listener()
    claim(folder, KIND)
    asked = {
        label: ask_all(study, models_folder(folder, label), listener.about(label), True)
        for label, study in studies.items()
    }
    joined = _joined(asked, folder / "tables")
    kinds = {study.layer.positions for study in studies.values()}
    content = Content(
        title=f"The first attention layers of {len(studies)} checkpoints",
        summary=SUMMARY,
        facts=[(label, _sizes(study)) for label, study in studies.items()],
        parts=draw_parts(joined, folder, width, listener, engine),
        downloads=downloads(joined),
        terms=" ".join(TERMS[kind] for kind in kinds) if len(kinds) == 1 else "",
        notes=_notes(studies),
    )
    write_page(folder, content, joined)
    record(folder, KIND, list(studies.values()), listener.passed)
    return folder / PAGE


def models_folder(folder: Path, label: str) -> Path:
    """The folder of one model's answers: the ASCII letters and digits of its label, and a hash."""
    plain = "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in label)[-40:]
    return folder / "models" / f"{plain}-{hashlib.sha256(label.encode()).hexdigest()[:8]}"


def _joined(asked: Mapping[str, Sequence[Asked]], folder: Path) -> list[Asked]:
    """Each question once, with the answers of all models that have one."""
    questions: dict[tuple[str, str], dict[str, Asked]] = {}  # parameters may differ between models
    for label, entries in asked.items():
        for each in entries:
            questions.setdefault((each.entry.question.name(), each.entry.label), {})[label] = each
    joined = []
    for several in questions.values():
        answers = {label: each.answer for label, each in several.items() if each.answer is not None}
        first = next(iter(several.values()))
        if not answers:
            joined.append(first)
            continue
        answer = side_by_side(first.entry.question, answers)
        ReportStore(folder, first.entry.label).keep(answer)
        joined.append(Asked(replace(first.entry, figure=next(iter(answer.figures), None)), answer))
    return joined


def _sizes(study: Study) -> str:
    layer = study.layer
    counted = "no counts" if study.counts is None else f"{int(study.counts.tokens.sum()):,} tokens counted"
    sizes = f"{layer.n_heads} heads of {layer.d_head}, {layer.vocab_size:,} tokens, {layer.n_positions:,} positions"
    return f"{sizes}; {counted}"


def _notes(studies: Mapping[str, Study]) -> list[str]:
    notes = [f"{label}: {note}." for label, study in studies.items() for note in study.layer.notes]
    without = [label for label, study in studies.items() if study.counts is None]
    if without:
        notes.append(f"Without counts (none given, or from another tokenizer): {', '.join(without)}.")
    texts = dict.fromkeys(note for study in studies.values() for note in study.notes if note not in study.layer.notes)
    return [*notes, *map(sentence, texts)]
