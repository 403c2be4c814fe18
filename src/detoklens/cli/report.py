"""`detoklens report`: a full report of a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from detoklens.cli.adapter import AnalysedModel, Corpus, SeedOptions, command_of, open_study
from detoklens.cli.output import chosen_width
from detoklens.cli.progress import shown_progress, step_list
from detoklens.corpus.records import ReadingOptions
from detoklens.engines import open_engine
from detoklens.errors import DetokLensError
from detoklens.questions.parameters import Heads, Parameter
from detoklens.questions.study import Study, Work, fitting_counts
from detoklens.questions.texts import Texts
from detoklens.report.folder import claim, refuse_foreign
from detoklens.report.report import KIND, make_report

if TYPE_CHECKING:
    from detoklens.engines import Engine


@dataclass(frozen=True)
class Report:
    """Options of a report."""

    corpus: Annotated[
        Sequence[str],
        Parameter("Count this text first, into OUT/counts; may be repeated.", metavar="INPUT", advanced=True),
    ] = ()
    heads: Heads = None
    layers: Annotated[
        int | None, Parameter("Also run this many blocks of the real model; needs detoklens[model].", least=1)
    ] = None
    out: Annotated[Path, Parameter("Output folder.", metavar="DIR")] = Path("report")
    figure_width: Annotated[
        str, Parameter("Figure width: column is 3.3 inches, page is 7.", metavar="column|page|INCHES")
    ] = "page"


def report(model: AnalysedModel, made: Report, corpus: Corpus, texts: Texts, chance: SeedOptions, work: Work) -> None:
    """Write a full report of a model: page, figures, tables, provenance.

    Writes report.html, figures (SVG, PDF, PNG) and tables (parquet, CSV). Without --counts or --corpus, or without
    --text, the page says what was left out; `demo` has its own of both. Run the same command again to continue an
    interrupted report; answers with unchanged inputs are reused. --heads chooses the heads drawn large; the tables
    contain all.

    Example: detoklens report gpt2 --counts counts --text 'openwebtext/*.parquet' --out gpt2-report
    """
    refuse_foreign(made.out, KIND)
    width = chosen_width(made.figure_width)
    if corpus.counts is not None and made.corpus:
        raise DetokLensError("--counts and --corpus exclude each other; pass one of them")
    study = open_study(model, corpus, texts, chance, work)
    study.heads(made.heads)
    with open_engine(workers=work.workers) as engine:
        if made.corpus:
            claim(made.out, KIND)
            study = _with_counts(study, made, texts, engine)
        with step_list() as listener:
            page = make_report(study, made.out, width, made.heads, listener, made.layers, engine)
    typer.echo(page)


def _with_counts(study: Study, made: Report, texts: Texts, engine: Engine) -> Study:
    """The same study with its corpus counted by the model's tokenizer; continues an interrupted count."""
    from detoklens.corpus.count import CountingOptions, count_corpus

    folder = made.out / "counts"
    reading = ReadingOptions(texts.text_field, texts.document_per_line, texts.skip_bad)
    with shown_progress() as watch:
        count_corpus(list(made.corpus), study.layer.vocabulary, folder, CountingOptions(reading), engine, watch)
    counts = fitting_counts(folder, study.layer)
    return Study(study.layer, counts, study.texts, study.seed, study.work, study.model_words)


command = command_of(report, [AnalysedModel, Report, Corpus, Texts, SeedOptions, Work])
