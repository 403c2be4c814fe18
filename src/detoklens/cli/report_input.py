"""What a report is made of: the model, its counts (given, or counted from a corpus), its text, and the demo's own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from detoklens import demo
from detoklens.cli import asking, text_input
from detoklens.cli.options import whole_numbers
from detoklens.errors import DetokLensError

if TYPE_CHECKING:
    from detoklens.corpus.counts import Counts
    from detoklens.report.subject import Subject
    from detoklens.scores.layer import Layer

Corpus = Annotated[
    list[str] | None,
    typer.Option(
        "--corpus",
        metavar="INPUT",
        help="Count this text first, as `detoklens count` does, into OUT/counts; may be repeated.",
        show_default=False,
    ),
]
Texts = Annotated[
    list[str] | None,
    typer.Option(
        "--text",
        metavar="INPUT",
        help="Measure attention on these documents: files, folders, globs or a hub dataset; may be repeated.",
        show_default=False,
    ),
]
FigureWidth = Annotated[
    str, typer.Option("--figure-width", metavar="column|page|INCHES", help="How wide figures are: 3.3 in, 7 in, or so.")
]

DEMO_TEXT = (
    "The documents are sampled from the model itself (temperature 1, from its end-of-text token), not written by "
    "people; give your own with --text."
)


def subject_of(
    model: str,
    revision: str | None,
    counts_folder: Path | None,
    corpus: list[str] | None,
    texts: text_input.Asked,
    heads: str | None,
    out: Path,
    workers: int | None = None,
) -> Subject:
    """Gather all of it; the demo model brings its own counts and documents where no others are given."""
    from detoklens.report.making import KIND, claim

    if counts_folder is not None and corpus:
        raise DetokLensError("give either --counts or --corpus, not both")
    layer = asking.open_layer(model, revision)
    chosen = whole_numbers(heads, "heads")
    if chosen is not None:
        layer.check_heads(chosen)
    if corpus:
        claim(out, KIND)
        counts_folder = _count(corpus, layer, out / "counts", texts, workers)
    counts = asking.open_counts(counts_folder, layer)
    return subject_from(layer, model, revision, counts, counts_folder, texts, chosen)


def subject_from(
    layer: Layer,
    model: str,
    revision: str | None,
    counts: Counts | None,
    counts_folder: Path | None,
    texts: text_input.Asked,
    heads: list[int] | None,
) -> Subject:
    """A model with its counts and its sampled documents, and the words that name them on the command line."""
    from detoklens.report.subject import Subject

    own_text = not texts.inputs and demo.is_demo(layer.name)
    return Subject(
        layer=layer,
        counts=counts,
        documents=text_input.read_sample(layer, texts) if texts.inputs or own_text else [],
        model_words=[model, *(["--revision", revision] if revision else [])],
        counts_words=["--counts", str(counts_folder)] if counts_folder else [],
        text_words=_text_words(texts),
        text_note=DEMO_TEXT if own_text else "",
        heads=heads,
        seed=texts.seed,
    )


def chosen_width(text: str) -> str | float:
    """`column`, `page`, or a number of inches; refused before any work is done."""
    from detoklens.figures.theme import WIDTHS, inches

    inches(text)
    return text if text in WIDTHS else float(text)


def _text_words(texts: text_input.Asked) -> list[str]:
    words = [word for given in texts.inputs or [] for word in ("--text", given)]
    words += ["--documents", str(texts.documents)]
    words += ["--prepend-bos"] if texts.prepend_bos else []
    words += ["--text-field", texts.text_field] if texts.text_field != "text" else []
    words += ["--document-per-line"] if texts.document_per_line else []
    return [*words, *(["--skip-bad"] if texts.skip_bad else [])]


def _count(corpus: list[str], layer: Layer, folder: Path, texts: text_input.Asked, workers: int | None) -> Path:
    """Count the corpus with the model's tokenizer, or go on where an earlier run stopped."""
    from detoklens.cli.counting_progress import shown_progress
    from detoklens.corpus.count import CountingOptions, count_corpus
    from detoklens.corpus.records import ReadingOptions
    from detoklens.engines import open_engine

    reading = ReadingOptions(texts.text_field, texts.document_per_line, texts.skip_bad)
    with open_engine("local", workers, None) as running, shown_progress() as watch:
        count_corpus(corpus, layer.vocabulary, folder, CountingOptions(reading), running, watch)
    return folder
