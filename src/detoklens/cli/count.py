"""`detoklens count`: count the tokens and bigrams of a corpus."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from detoklens.cli.adapter import Cluster, Memory, command_of, parse_size
from detoklens.cli.output import Printed, print_table, say
from detoklens.cli.progress import shown_progress
from detoklens.corpus.count import count_corpus
from detoklens.corpus.reading import ReadingOptions
from detoklens.demo import NAME as DEMO
from detoklens.engines import open_engine
from detoklens.loading import load_vocabulary
from detoklens.questions.parameters import REQUIRED, Parameter
from detoklens.questions.texts import DocumentPerLine, SkipBad, TextField
from detoklens.tables.schema import COUNT_TOTALS


@dataclass(frozen=True)
class Counting:
    """Options of a count."""

    inputs: Annotated[
        Sequence[str],
        Parameter(
            "Files, folders or globs of .txt, .jsonl (also .gz, .zst) or .parquet, or a hub dataset: owner/name or "
            "owner/name/pattern.",
            metavar="INPUT",
            positional=True,
        ),
    ] = REQUIRED
    out: Annotated[Path, Parameter("Output folder.", metavar="COUNTS")] = REQUIRED
    tokenizer: Annotated[
        str | None,
        Parameter("Model whose tokenizer is used: a folder, a hub id, or demo. Default: demo.", metavar="MODEL"),
    ] = None
    text_field: TextField = "text"
    document_per_line: DocumentPerLine = False
    limit_documents: Annotated[int | None, Parameter("Only the first N documents, skipped ones included.", least=1)] = (
        None
    )
    skip_bad: SkipBad = False
    parse_special_tokens: Annotated[
        bool, Parameter("Read special tokens such as <|endoftext|> in the text as tokens, not as text.", advanced=True)
    ] = False
    memory: Memory = None
    batch: Annotated[
        str, Parameter("Amount of text tokenized per batch and worker.", metavar="SIZE", advanced=True)
    ] = "8MB"


def count(counting: Counting, work: Cluster, printed: Printed) -> None:
    """Count the tokens and bigrams of a corpus of any size.

    Bigrams never span two documents, and no special token is added. Run the same command again to continue an
    interrupted count. The result doesn't depend on the number of workers.

    Example: detoklens count 'openwebtext/*.parquet' --tokenizer gpt2 --out counts
    """
    memory = None if counting.memory is None else parse_size(counting.memory, "--memory")
    batch = parse_size(counting.batch, "--batch")
    if counting.tokenizer is None:
        say("counting with the demo model's tokenizer; choose another with --tokenizer")
    vocabulary = load_vocabulary(counting.tokenizer or DEMO)
    with open_engine(work.engine, work.workers, work.ray_address) as running, shown_progress() as watch:
        counts = count_corpus(
            list(counting.inputs),
            vocabulary,
            counting.out,
            reading=ReadingOptions(counting.text_field, counting.document_per_line, counting.skip_bad),
            limit_documents=counting.limit_documents,
            parse_special_tokens=counting.parse_special_tokens,
            memory=memory,
            batch=batch,
            engine=running,
            watch=watch,
        )
    totals = counts.manifest["totals"]
    if totals["replaced_characters"]:
        say(
            f"{totals['replaced_characters']} undecodable characters in {totals['documents_with_replacements']} "
            "documents were replaced by U+FFFD"
        )
    if totals["skipped_records"]:
        say(f"{totals['skipped_records']} bad records were skipped, first {'; '.join(totals['first_skipped'])}")
    print_table(COUNT_TOTALS.frame(counts.totals()), printed.output_format, f"{counting.out}: {COUNT_TOTALS.question}")


command = command_of(count, [Counting, Cluster, Printed])
