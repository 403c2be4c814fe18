"""`detoklens counts`: inspect corpus counts, and make them from published ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from detoklens.cli.adapter import Cluster, Memory, command_of, parse_size
from detoklens.cli.app import CONTEXT, Command
from detoklens.cli.output import Printed, print_table, say
from detoklens.cli.progress import shown_progress
from detoklens.corpus.count import import_counts
from detoklens.corpus.counts import Counts
from detoklens.engines import open_engine
from detoklens.errors import TokenError
from detoklens.loading import load_vocabulary
from detoklens.questions.parameters import REQUIRED, Parameter
from detoklens.tables.schema import COUNT_TOTALS, PREDECESSORS
from detoklens.wording import plural


@dataclass(frozen=True)
class Show:
    """Which counts and which token to show."""

    folder: Annotated[
        str, Parameter("A folder written by `detoklens count`, or demo.", metavar="COUNTS", positional=True)
    ] = REQUIRED
    token: Annotated[
        str | None,
        Parameter('A token as text, spaces included: " the".', metavar="TOKEN", positional=True),
    ] = None
    token_id: Annotated[int | None, Parameter("The token as an id.", metavar="ID", least=0)] = None
    top: Annotated[int, Parameter("Number of predecessors.", least=1)] = 10


def show(options: Show, printed: Printed) -> None:
    """Show the totals, or the most frequent predecessors of a token.

    Example: detoklens counts show demo ion --top 5
    """
    opened = Counts.open(options.folder)
    if options.token is None and options.token_id is None:
        title = f"{options.folder}: {COUNT_TOTALS.question}"
        print_table(COUNT_TOTALS.frame(opened.totals()), printed.output_format, title)
        return
    if options.token is not None and options.token_id is not None:
        raise TokenError("a token was given both as text and as --token-id; pass one of them")
    token_id = opened.token_id(options.token or "") if options.token_id is None else options.token_id
    found = PREDECESSORS.frame(opened.most_frequent_predecessors(token_id, options.top))
    title = f"{opened.texts[token_id]!r} ({token_id}) occurs {opened.tokens[token_id]:,} times, after"
    print_table(found, printed.output_format, title)


@dataclass(frozen=True)
class Import:
    """What to import, and how it is read."""

    files: Annotated[
        Sequence[str],
        Parameter(
            "Files, folders, globs or a hub dataset: a .parquet of id0, id1, count; a .parquet or .arrow with a column "
            "of token ids; .npy or .bin files of token ids; Megatron's .bin with its .idx; infini-gram's tokenized.*.",
            metavar="FILE",
            positional=True,
        ),
    ] = REQUIRED
    tokenizer: Annotated[
        str, Parameter("Model whose tokenizer made the ids: a folder, a GGUF file or a hub id.", metavar="MODEL")
    ] = REQUIRED
    out: Annotated[Path, Parameter("Output folder.", metavar="COUNTS")] = REQUIRED
    ids_field: Annotated[str, Parameter("Column of token ids.")] = "input_ids"
    dtype: Annotated[
        Literal["uint16", "uint32"] | None,
        Parameter("Type of the ids in files without a header."),
    ] = None
    separator: Annotated[
        int | None,
        Parameter("Token id between documents; neither it nor bigrams with it are counted.", metavar="ID", least=0),
    ] = None
    packed: Annotated[bool, Parameter("Rows hold several documents each: record that bigrams may cross documents.")] = (
        False
    )
    memory: Memory = None


def import_(options: Import, work: Cluster, printed: Printed) -> None:
    """Make counts from published token ids or bigram counts.

    The result is what `detoklens count` gives for the same documents. Without a separator or bounds, a flat file of
    ids is one long document, and the manifest says that bigrams may cross documents.

    Example: detoklens counts import tokens.npy --tokenizer gpt2 --separator 50256 --out counts
    """
    memory = None if options.memory is None else parse_size(options.memory, "--memory")
    vocabulary = load_vocabulary(options.tokenizer)
    with open_engine(work.engine, work.workers, work.ray_address) as running, shown_progress() as watch:
        counts = import_counts(
            list(options.files),
            vocabulary,
            options.out,
            ids_field=options.ids_field,
            dtype=options.dtype,
            separator=options.separator,
            packed=options.packed,
            memory=memory,
            engine=running,
            watch=watch,
        )
    if counts.manifest["source"]["pairs_may_cross_documents"]:
        say("bigrams may cross documents: nothing says where documents end")
    elif options.separator is not None and counts.manifest["source"]["kind"] == "flat ids":
        documents = counts.manifest["totals"]["documents_with_tokens"]
        n_files = sum(not file["path"].endswith(".csv.gz") for file in counts.manifest["inputs"])
        if documents <= n_files:
            found = f"{plural(documents, 'document')} in {plural(n_files, 'file')}"
            say(f"{found}: check that token {options.separator} separates documents")
    print_table(COUNT_TOTALS.frame(counts.totals()), printed.output_format, f"{options.out}: {COUNT_TOTALS.question}")


command = typer.Typer(help="Inspect and import corpus counts.", no_args_is_help=True, rich_markup_mode=None)


@command.callback()
def _about() -> None:
    """Inspect and import corpus counts."""


command.command("show", cls=Command, context_settings=CONTEXT)(command_of(show, [Show, Printed]))
command.command("import", cls=Command, context_settings=CONTEXT)(command_of(import_, [Import, Cluster, Printed]))
