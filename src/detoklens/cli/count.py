"""`detoklens count`: how often does each token, and each pair of tokens, occur in a corpus?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from detoklens.cli import options
from detoklens.cli.output import emit, say
from detoklens.demo import NAME as DEMO

if TYPE_CHECKING:
    from detoklens.corpus.counts import Counts

Inputs = Annotated[
    list[str],
    typer.Argument(
        metavar="INPUT...",
        help="Files, folders or globs of .txt, .jsonl (also .gz, .zst) or .parquet, or a hub dataset: owner/name, "
        "owner/name/pattern.",
    ),
]
TokenizerOption = Annotated[
    str,
    typer.Option("--tokenizer", metavar="MODEL", help="Whose tokenizer: a folder, a hub id, or demo."),
]
CountsOut = Annotated[Path, typer.Option("--out", metavar="COUNTS", help="The folder for the counts.")]
Workers = Annotated[
    int | None,
    typer.Option("--workers", min=1, help="Processes at work. Default: one for each core.", show_default=False),
]
EngineOption = Annotated[
    str, typer.Option("--engine", metavar="local|ray", help="Processes of this machine, or a Ray cluster.")
]
RayAddress = Annotated[
    str | None,
    typer.Option("--ray-address", help="An existing cluster. Default: one started here.", show_default=False),
]
TextField = Annotated[
    str, typer.Option("--text-field", help="The field of a JSON line, or the column of a parquet file.")
]
DocumentPerLine = Annotated[
    bool, typer.Option("--document-per-line", help="A line of a .txt file is a document; else the whole file is.")
]
LimitDocuments = Annotated[
    int | None,
    typer.Option(
        "--limit-documents", min=1, help="Only the first N documents; skipped ones count.", show_default=False
    ),
]
SkipBad = Annotated[
    bool, typer.Option("--skip-bad", help="Leave out records that are broken or lack the field, and count them.")
]
ParseSpecialTokens = Annotated[
    bool,
    typer.Option(
        "--parse-special-tokens",
        help="The text <|endoftext|> is that special token; else it is text like any other.",
    ),
]
Memory = Annotated[
    str | None,
    typer.Option("--memory", metavar="SIZE", help="For all workers. Default: a quarter of the machine's."),
]
Batch = Annotated[str, typer.Option("--batch", metavar="SIZE", help="Text tokenized at once by a worker.")]


def count(
    inputs: Inputs,
    out: CountsOut,
    tokenizer: TokenizerOption = DEMO,
    workers: Workers = None,
    engine: EngineOption = "local",
    ray_address: RayAddress = None,
    text_field: TextField = "text",
    document_per_line: DocumentPerLine = False,
    limit_documents: LimitDocuments = None,
    skip_bad: SkipBad = False,
    parse_special_tokens: ParseSpecialTokens = False,
    memory: Memory = None,
    batch: Batch = "8MB",
    output_format: options.FormatOption = options.Format.table,
) -> None:
    """Count the tokens and bigrams of a corpus of any size.

    Bigrams are counted inside a document, never across two; no special token is added. A run that was interrupted is
    continued by the same command. The files are the same whatever the number of workers.

    Example: detoklens count 'openwebtext/*.parquet' --tokenizer gpt2 --out counts
    """
    from detoklens.cli.counting_progress import shown_progress
    from detoklens.corpus.count import CountingOptions, count_corpus
    from detoklens.corpus.memory import parse_size
    from detoklens.corpus.records import ReadingOptions
    from detoklens.engines import open_engine
    from detoklens.loading import load_vocabulary

    asked = CountingOptions(
        reading=ReadingOptions(text_field, document_per_line, skip_bad),
        limit_documents=limit_documents,
        parse_special_tokens=parse_special_tokens,
        memory=None if memory is None else parse_size(memory, "--memory"),
        batch=parse_size(batch, "--batch"),
    )
    if tokenizer == DEMO:
        say("counting with the demo model's tokenizer; --tokenizer names another model's")
    vocabulary = load_vocabulary(tokenizer)
    with open_engine(engine, workers, ray_address) as running, shown_progress() as watch:
        counts = count_corpus(inputs, vocabulary, out, asked, running, watch)
    _answer(counts, out, output_format)


def _answer(counts: Counts, out: Path, output_format: options.Format) -> None:
    """What was wrong with the input on stderr, the totals on stdout."""
    from detoklens.tables.corpus import COUNT_TOTALS

    totals = counts.manifest["totals"]
    if totals["replaced_characters"]:
        say(
            f"{totals['replaced_characters']} undecodable characters in {totals['documents_with_replacements']} "
            "documents were replaced by U+FFFD"
        )
    if totals["skipped_records"]:
        say(f"{totals['skipped_records']} bad records were skipped, first {'; '.join(totals['first_skipped'])}")
    emit(COUNT_TOTALS.frame(counts.totals()), output_format, title=f"{out}: {COUNT_TOTALS.question}")
