"""One question, several models: their answers side by side in one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import polars as pl

from detoklens.errors import DetokLensError
from detoklens.questions.answer import Answer, Comparison
from detoklens.questions.study import Study, study
from detoklens.tables.files import Provenance

if TYPE_CHECKING:
    from detoklens.questions.base import Question


def compare(models: Mapping[str, Any], question: Question, **options: Any) -> Comparison:
    """Ask several models the same; `models` are studies, or what `study` takes, by label.

    Options are those of `study`, for the models that are no studies yet.
    """
    if not isinstance(models, Mapping):
        raise DetokLensError('models to compare are given by label: {"start": "demo@0", "end": "demo"}')
    if len(models) < 2:
        raise DetokLensError(f"{len(models)} model was named; name at least two to compare")
    studies = {label: model if isinstance(model, Study) else study(model, **options) for label, model in models.items()}
    return side_by_side(question, {label: each.ask(question) for label, each in studies.items()})


def side_by_side(question: Question, answers: Mapping[str, Answer]) -> Comparison:
    """The answers of several models as one, each table once with a column that names the model."""
    tables = {name: _joined(name, answers) for name in _compared_tables(question, answers)}
    command = " && ".join(answer.command for answer in answers.values())
    provenance = Provenance(
        command="compare",
        model=", ".join(answers),
        model_fingerprint="",
        options={label: answer.provenance.to_json() for label, answer in answers.items()},
    )
    notes = tuple(f"{label}: {note}" for label, answer in answers.items() for note in answer.notes)
    return Comparison(question, ", ".join(answers), tables, provenance, command, notes, tuple(answers))


def _compared_tables(question: Question, answers: Mapping[str, Answer]) -> list[str]:
    found = dict.fromkeys(name for answer in answers.values() for name in answer.tables)
    return [name for name in found if not question.compared_tables or name in question.compared_tables]


def _joined(name: str, answers: Mapping[str, Answer]) -> Any:
    frames = [
        answer.tables[name].select(pl.lit(label).alias("model"), pl.all())
        for label, answer in answers.items()
        if name in answer.tables
    ]
    return pl.concat(frames, how="diagonal")
