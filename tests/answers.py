"""Answers about the demo and figures of its report, computed once per test run.

Commands, notebooks and pages of the docs ask the same few questions. Tests that check what is printed or drawn, and not
how it is computed, share the answers through a folder, also between processes.
"""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from detoklens.questions.answer import Answer
from detoklens.questions.base import Question
from detoklens.questions.study import Study
from detoklens.report import drawing
from detoklens.tables.files import Provenance

compute, draw = Study._computed, drawing.draw_files


def sharing_answers(folder: Path) -> Callable[..., Answer]:
    """A `Study._computed` that computes only what nobody has put into the folder."""

    def answered(study: Study, question: Question, provenance: Provenance, *where: object) -> Answer:
        kept = folder / hashlib.sha256(provenance.to_json().encode()).hexdigest()
        if kept.exists():
            tables, notes = pickle.loads(kept.read_bytes())
            return Answer(question, study.layer.name, tables, provenance, study.command(question), notes)
        answer = compute(study, question, provenance, *where)
        keep(kept, (answer.tables, answer.notes))
        return answer

    return answered


class SharingDrawings:
    """A `draw_files` that draws only what nobody has put into the folder; workers take it along."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, figure: drawing.Drawing, width: str | float, formats: Sequence[str]) -> dict[str, bytes]:
        kept = self.folder / f"{drawing._fingerprint(figure, width)} {' '.join(formats)}"
        if kept.exists():
            return pickle.loads(kept.read_bytes())
        files = draw(figure, width, formats)
        keep(kept, files)
        return files


def draw_nothing(_: drawing.Drawing, width: str | float, formats: Sequence[str]) -> dict[str, bytes]:
    """A `draw_files` whose files are no drawings."""
    return dict.fromkeys((*formats, drawing.PHONE), b"<?xml?>\n<svg/>")


def keep(path: Path, content: Any) -> None:
    """Nobody reads half of it."""
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    partial.write_bytes(pickle.dumps(content))
    partial.replace(path)
