"""Ask several models one question and join their answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import polars as pl

from detoklens.errors import DetokLensError
from detoklens.loading import expand_revisions
from detoklens.questions.answer import Answer, Comparison
from detoklens.questions.study import Study, study
from detoklens.tables.files import Provenance
from detoklens.wording import plural

if TYPE_CHECKING:
    from detoklens.questions.base import Question


def compare(models: Mapping[str, Any] | str, question: Question, **options: Any) -> Comparison:
    """Ask several models the same question.

    Parameters
    ----------
    models
        Studies, or what `study` takes, by label; or the training steps of one model, such as
        ``"EleutherAI/pythia-70m@step1000..step143000:8"``.
    question
        The question, e.g. ``dl.Heads()``.
    **options
        Arguments of `study` for the models that are not studies yet.

    Returns
    -------
    Comparison
        The joined answer; its tables have a column ``model``.

    Raises
    ------
    DetokLensError
        Fewer than two models, or a model can't answer the question.

    Examples
    --------
    >>> import detoklens as dl
    >>> compared = dl.compare({"start": "demo@0", "end": "demo"}, dl.Variance())
    >>> compared.labels
    ('start', 'end')
    """
    if isinstance(models, str):
        models = {name.rpartition("@")[2]: name for name in expand_revisions(models)}
    if not isinstance(models, Mapping):
        raise DetokLensError('models is not a mapping; pass models by label, e.g. {"start": "demo@0", "end": "demo"}')
    if len(models) < 2:
        raise DetokLensError(f"{plural(len(models), 'model')} to compare; name at least two")
    studies = {label: model if isinstance(model, Study) else study(model, **options) for label, model in models.items()}
    return side_by_side(question, {label: each.ask(question) for label, each in studies.items()})


def side_by_side(question: Question, answers: Mapping[str, Answer]) -> Comparison:
    """Join the answers of several models; each table gets a column with the model's label."""
    names = dict.fromkeys(name for answer in answers.values() for name in answer.tables)
    tables = {
        name: pl.concat(
            [
                answer.tables[name].select(pl.lit(label).alias("model"), pl.all())
                for label, answer in answers.items()
                if name in answer.tables
            ],
            how="diagonal",
        )
        for name in names
        if not question.compared_tables or name in question.compared_tables
    }
    command = " && ".join(answer.command for answer in answers.values())
    provenance = Provenance(
        command="compare",
        model=", ".join(answers),
        model_fingerprint="",
        options={label: answer.provenance.to_json() for label, answer in answers.items()},
    )
    notes = tuple(f"{label}: {note}" for label, answer in answers.items() for note in answer.notes)
    return Comparison(question, ", ".join(answers), tables, provenance, command, notes, tuple(answers))
