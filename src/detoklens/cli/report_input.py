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
    seed: int,
    workers: int | None = None,
) -> Subject:
    """Gather all of it; the demo model brings its own counts and documents where no others are given."""
    from detoklens.report.subject import Subject

    if counts_folder is not None and corpus:
        raise DetokLensError("give either --counts or --corpus, not both")
    layer = asking.open_layer(model, revision)
    chosen = whole_numbers(heads, "heads")
    if chosen is not None:
        layer.check_heads(chosen)
    if corpus:
        counts_folder = _count(corpus, layer, out / "counts", texts, workers)
    counts = asking.open_counts(counts_folder, layer)
    own_text = not texts.inputs and model == demo.NAME
    if own_text:
        texts.inputs.append(str(demo.DOCUMENTS))
    return Subject(
        layer=layer,
        counts=counts,
        documents=text_input.read_sample(layer, texts) if texts.inputs else [],
        model_words=[model, *(["--revision", revision] if revision else [])],
        counts_words=["--counts", str(counts_folder)] if counts_folder else [],
        text_words=[] if own_text else _text_words(texts),
        text_note=DEMO_TEXT if own_text else "",
        heads=chosen,
        seed=seed,
    )


def chosen_width(text: str) -> str | float:
    """`column`, `page`, or a number of inches."""
    if text in ("column", "page"):
        return text
    try:
        return float(text)
    except ValueError:
        raise DetokLensError(f"--figure-width {text!r} is not known; accepted are column, page, or inches") from None


def _text_words(texts: text_input.Asked) -> list[str]:
    words = [word for given in texts.inputs for word in ("--text", given)]
    words += ["--documents", str(texts.documents)]
    return [*words, *(["--prepend-bos"] if texts.prepend_bos else [])]


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
