"""`detoklens report`: everything the paper shows, for any model, as one page with its tables and figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from detoklens.cli import options, report_input, text_input
from detoklens.cli.output import say


def report(
    model: options.Model = "demo",
    counts: options.CountsFolder = None,
    corpus: report_input.Corpus = None,
    text: report_input.Texts = None,
    heads: options.Heads = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the report goes.")] = Path("report"),
    figure_width: report_input.FigureWidth = "page",
    documents: text_input.Documents = 200,
    prepend_bos: text_input.PrependBos = False,
    text_field: text_input.TextField = "text",
    document_per_line: text_input.DocumentPerLine = False,
    skip_bad: text_input.SkipBad = False,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of drawn tokens, nulls, resamples and documents.")] = 0,
    workers: text_input.Workers = None,
    engine: text_input.EngineName = "local",
    ray_address: text_input.RayAddress = None,
    revision: options.Revision = None,
) -> None:
    """Make the whole report of a model: report.html, figures (SVG, PDF, PNG), tables (parquet, CSV) and provenance.

    Without --counts or --corpus what needs a corpus is left out, and the page says so; without --text what is measured
    on text. The model `demo` brings its own. An interrupted report is continued by the same command, and steps that
    were done before with the same inputs are not done again.

    Example: detoklens report gpt2 --counts counts --text 'openwebtext/*.parquet' --out gpt2-report
    """
    from detoklens.cli.step_list import step_list
    from detoklens.engines import open_engine
    from detoklens.report.making import make_report, refuse_foreign

    refuse_foreign(out)
    asked = text_input.Asked(text or [], documents, seed, None, prepend_bos, text_field, document_per_line, skip_bad)
    width = report_input.chosen_width(figure_width)
    subject = report_input.subject_of(model, revision, counts, corpus, asked, heads, out, workers)
    with open_engine(engine, workers, ray_address) as running, step_list() as listener:
        page = make_report(subject, out, width, running, listener)
    say(f"open {page} in a browser")
    typer.echo(page)
