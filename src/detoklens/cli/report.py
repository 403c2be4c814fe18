"""`detoklens report`: a full report of a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from detoklens.cli.adapter import AnalysedModel, Corpus, SeedOptions, command_of, open_study
from detoklens.cli.output import Width
from detoklens.cli.progress import shown_progress, step_list
from detoklens.corpus.count import count_corpus
from detoklens.corpus.reading import ReadingOptions
from detoklens.engines import open_engine
from detoklens.errors import DetokLensError
from detoklens.figures.theme import inches
from detoklens.questions.parameters import Heads, Parameter
from detoklens.questions.study import Study, Work, fitting_counts
from detoklens.questions.texts import Texts
from detoklens.report.folder import claim, refuse_foreign
from detoklens.report.report import KIND, make_report


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
    figure_width: Width = "page"


def report(model: AnalysedModel, options: Report, corpus: Corpus, texts: Texts, seed: SeedOptions, work: Work) -> None:
    """Write a full report of a model: page, figures, tables, provenance.

    Writes report.html, figures (SVG, PDF, PNG) and tables (parquet, CSV). Some questions need counts (--counts or
    --corpus) or text (--text); without them, the page says what was left out. The demo model includes both. Run the
    same command again to continue an interrupted report; answers with unchanged inputs are reused. --heads chooses the
    heads drawn in detail; the tables contain all.

    Example: detoklens report gpt2 --counts counts --text 'openwebtext/*.parquet' --out gpt2-report
    """
    refuse_foreign(options.out, KIND)
    inches(options.figure_width)  # refused before any work
    if corpus.counts is not None and options.corpus:
        raise DetokLensError("--counts and --corpus can't be combined; pass one of them")
    study = open_study(model, corpus, texts, seed, work)
    study.heads(options.heads)
    with open_engine(workers=work.workers) as engine:
        if options.corpus:
            claim(options.out, KIND)
            folder = options.out / "counts"
            reading = ReadingOptions(texts.text_field, texts.document_per_line, texts.skip_bad)
            with shown_progress() as watch:  # continues an interrupted count
                inputs, vocabulary = list(options.corpus), study.layer.vocabulary
                count_corpus(inputs, vocabulary, folder, reading=reading, engine=engine, watch=watch)
            counts = fitting_counts(folder, study.layer)
            study = Study(study.layer, counts, study.texts, study.seed, study.work, study.model_words)
        with step_list() as listener:
            page = make_report(
                study, options.out, options.figure_width, options.heads, listener, options.layers, engine
            )
    typer.echo(page)


command = command_of(report, [AnalysedModel, Report, Corpus, Texts, SeedOptions, Work])
