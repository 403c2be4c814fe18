"""The answers of a report: every question of its sections asked once, or the reason why not."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from detoklens.errors import MissingError, RangeError, TokenError
from detoklens.questions.layers import Layers
from detoklens.questions.store import Store, labelled
from detoklens.report.sections import SECTIONS, WORD, Entry, SectionPlan
from detoklens.report.steps import Listener, Step

if TYPE_CHECKING:
    import polars as pl

    from detoklens.progress import Watcher
    from detoklens.questions.answer import Answer
    from detoklens.questions.study import Study

WITHOUT = {
    "counts": "No corpus counts were given, so this is left out",
    "text": "No text was given, so this is left out",
    "vocabulary": "The model came without a tokenizer, so this is left out",
    "position_table": "The model has no table of positions, so this is left out",
    "causal": "The model looks both ways, and this is measured only where it looks back, so it is left out",
}


@dataclass(frozen=True)
class Asked:
    """One question of a section and its answer, or why there is none."""

    section: SectionPlan
    entry: Entry
    answer: Answer | None = None
    left_out: str = ""

    @property
    def tables(self) -> dict[str, pl.DataFrame]:
        """The tables by the names of their files."""
        if self.answer is None:
            return {}
        named = self.answer.tables.items()
        return {labelled(self.entry.label, self.entry.question, name): frame for name, frame in named}


def ask_all(
    study: Study, folder: Path, listener: Listener, only_compared: bool = False, layers: int | None = None
) -> list[Asked]:
    """All questions of all sections; what was answered before with the same inputs is read, not computed again.

    So many blocks of the real model are run for the section on words, where that is asked for.
    """
    run = {} if layers is None else {WORD.title: [Entry(Layers(up_to=layers))]}
    planned = [
        (section, entry) for section in SECTIONS for entry in (*section.entries(study), *run.get(section.title, ()))
    ]
    return [
        _ask(study, section, entry, folder, listener)
        for section, entry in planned
        if entry.compared or not only_compared
    ]


def _ask(study: Study, section: SectionPlan, entry: Entry, folder: Path, listener: Listener) -> Asked:
    title = f"{entry.question.name()}{entry.remark}"
    started, computed = time.perf_counter(), False

    @contextlib.contextmanager
    def watching(doing: str) -> Iterator[Watcher | None]:
        nonlocal computed
        computed = True
        yield listener.begin(f"{title}: {doing}")

    try:
        answer = study.ask(entry.question, Store(folder, entry.label), watching)
    except MissingError as error:
        listener.tell(Step(title, missing=(error.need,)))
        return Asked(section, entry, left_out=f"{WITHOUT[error.need]}: {title}.")
    except (TokenError, RangeError) as error:
        listener.tell(Step(title, missing=(str(error),)))
        return Asked(section, entry, left_out=f"Left out: {title}, since {error}.")
    listener.tell(Step(title, time.perf_counter() - started, kept=not computed))
    return Asked(section, entry, answer)


def all_tables(asked: Sequence[Asked]) -> dict[str, pl.DataFrame]:
    """Every table of a report by its file's name."""
    return {name: frame for each in asked for name, frame in each.tables.items()}
