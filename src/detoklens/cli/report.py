"""`detoklens report`: everything the paper shows, for any model, as one page with its tables and figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from detoklens.cli.adapter import Corpus, Model, SeedOptions, command_of, open_study, with_default
from detoklens.cli.output import chosen_width, say
from detoklens.cli.progress import shown_progress, step_list
from detoklens.corpus.records import ReadingOptions
from detoklens.engines import open_engine
from detoklens.errors import DetokLensError
from detoklens.questions.parameters import Heads, Parameter, settings_of
from detoklens.questions.study import Study, Work, fitting_counts
from detoklens.questions.texts import Texts
from detoklens.report.folder import claim, refuse_foreign
from detoklens.report.report import KIND, make_report

if TYPE_CHECKING:
    from detoklens.engines import Engine

DOCUMENTS = 200  # of a report, where a question alone takes more


@dataclass(frozen=True)
class Report:
    """What a report is made of beside a study, and where it goes."""

    corpus: Annotated[
        Sequence[str],
        Parameter(
            "Count this text first, as `detoklens count` does, into OUT/counts; may be repeated.", metavar="INPUT"
        ),
    ] = ()
    heads: Heads = None
    layers: Annotated[
        int | None, Parameter("Run so many blocks of the real model too; needs the extra model.", least=1)
    ] = None
    out: Annotated[Path, Parameter("Where the report goes.", metavar="DIR")] = Path("report")
    figure_width: Annotated[
        str, Parameter("How wide figures are: 3.3 in, 7 in, or so.", metavar="column|page|INCHES")
    ] = "page"


def report(model: Model, made: Report, corpus: Corpus, texts: Texts, chance: SeedOptions, work: Work) -> None:
    """Make the whole report of a model: report.html, figures (SVG, PDF, PNG), tables (parquet, CSV) and provenance.

    Without --counts or --corpus what needs a corpus is left out, and the page says so; without --text what is measured
    on text. The model `demo` brings its own. An interrupted report is continued by the same command, and questions that
    were answered before with the same inputs are not asked again. --heads names the heads to draw large; the tables
    have all.

    Example: detoklens report gpt2 --counts counts --text 'openwebtext/*.parquet' --out gpt2-report
    """
    refuse_foreign(made.out, KIND)
    width = chosen_width(made.figure_width)
    if corpus.counts is not None and made.corpus:
        raise DetokLensError("give either --counts or --corpus, not both")
    study = open_study(model, corpus, texts, chance, work)
    study.heads(made.heads)
    with open_engine(workers=work.workers) as engine:
        if made.corpus:
            claim(made.out, KIND)
            study = _with_counts(study, made, texts, engine)
        with step_list() as listener:
            page = make_report(study, made.out, width, made.heads, listener, made.layers, engine)
    say(f"open {page} in a browser")
    typer.echo(page)


def _with_counts(study: Study, made: Report, texts: Texts, engine: Engine) -> Study:
    """The same study with its corpus counted by the model's tokenizer, going on where an earlier run stopped."""
    from detoklens.corpus.count import CountingOptions, count_corpus

    folder = made.out / "counts"
    reading = ReadingOptions(texts.text_field, texts.document_per_line, texts.skip_bad)
    with shown_progress() as watch:
        count_corpus(list(made.corpus), study.layer.vocabulary, folder, CountingOptions(reading), engine, watch)
    counts = fitting_counts(folder, study.layer)
    return Study(study.layer, counts, study.texts, study.seed, study.work, study.model_words)


OWNERS = {
    Model: settings_of(Model),
    Report: settings_of(Report),
    Corpus: settings_of(Corpus),
    Texts: with_default(settings_of(Texts), documents=DOCUMENTS),
    SeedOptions: settings_of(SeedOptions),
    Work: settings_of(Work),
}
command = command_of(report, OWNERS)
