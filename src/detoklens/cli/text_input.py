"""What commands that look at real text ask for alike: which texts, how many, how long, and where the work runs."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from detoklens import demo
from detoklens.cli.output import say
from detoklens.errors import CorpusError, RangeError, TokenError

if TYPE_CHECKING:
    import numpy as np

    from detoklens.analyses.block_runs import Runner
    from detoklens.corpus.sampling import Sample
    from detoklens.scores.layer import Layer
    from detoklens.tables.provenance import Provenance

BEGINNINGS = ("<|endoftext|>", "<s>", "<bos>", "[CLS]")
SEEN_OFTEN = 1000  # documents between two updates of the line that says how many were read

Texts = Annotated[
    list[str] | None,
    typer.Option(
        "--text",
        metavar="INPUT",
        help="Files, folders, globs or a hub dataset, as `detoklens count` reads them; may be repeated. "
        "The demo model brings documents of its own.",
        show_default=False,
    ),
]
Documents = Annotated[
    int,
    typer.Option("--documents", min=1, help="How many documents: those whose texts have the smallest hashes."),
]
Seed = Annotated[int, typer.Option("--seed", help="Another seed hashes texts anew: another sample.")]
Length = Annotated[
    int | None,
    typer.Option("--length", min=1, help="Cut documents to so many tokens. Default: the model's length."),
]
PrependBos = Annotated[
    bool, typer.Option("--prepend-bos", help="Put the model's beginning-of-text token before each document.")
]
TextField = Annotated[
    str, typer.Option("--text-field", help="The field of a JSON line, or the column of a parquet file.")
]
DocumentPerLine = Annotated[
    bool, typer.Option("--document-per-line", help="A line of a .txt file is a document; else the whole file is.")
]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Leave out records that are broken or lack the field.")]
QueryPositions = Annotated[
    str | None,
    typer.Option("--query-positions", metavar="50,500", help="Look from these positions, from 0.", show_default=False),
]
Workers = Annotated[
    int | None,
    typer.Option("--workers", min=1, help="Processes at work. Default: one for each core.", show_default=False),
]
EngineName = Annotated[
    str, typer.Option("--engine", metavar="local|ray", help="Processes of this machine, or a Ray cluster.")
]
RayAddress = Annotated[
    str | None,
    typer.Option("--ray-address", help="An existing cluster. Default: one started here.", show_default=False),
]


@dataclass(frozen=True)
class Asked:
    """Which documents a command was asked to look at."""

    inputs: list[str]
    documents: int
    seed: int
    length: int | None
    prepend_bos: bool
    text_field: str
    document_per_line: bool
    skip_bad: bool

    def options(self) -> dict[str, Any]:
        """What of it decides the numbers; the texts themselves are known by their digest."""
        return {
            "documents": self.documents,
            "seed": self.seed,
            "length": self.length,
            "prepend_bos": self.prepend_bos,
        }


def read_sample(layer: Layer, asked: Asked) -> list[np.ndarray]:
    """The token ids of the sampled documents, cut to length; what was passed over is said on stderr."""
    from detoklens.corpus.documents import read_documents
    from detoklens.corpus.records import ReadingOptions, Tally
    from detoklens.corpus.sampling import sample_by_hash

    tally = Tally()
    reading = ReadingOptions(asked.text_field, asked.document_per_line, asked.skip_bad)
    documents = read_documents(asked.inputs or _own_documents(layer), reading, tally=tally)
    encode = _encoder(layer, _length(layer, asked.length), asked.prepend_bos)
    sample = sample_by_hash(_counted(document.text for document in documents), asked.documents, encode, asked.seed)
    _describe(sample, tally.skipped_records)
    return sample.documents


def _own_documents(layer: Layer) -> list[str]:
    """The documents that come with the demo model; other models have none."""
    if not demo.is_demo(layer.name):
        raise CorpusError("no text to look at: name files, folders, globs or a hub dataset by --text")
    say("the documents that come with the demo model are sampled from it, not written by people; --text gives others")
    return [str(demo.DOCUMENTS)]


def _length(layer: Layer, length: int | None) -> int:
    if length is not None and length > layer.n_positions:
        raise RangeError(f"--length {length} is more than the {layer.n_positions} positions of {layer.name}; lower it")
    return length or layer.n_positions


def _encoder(layer: Layer, length: int, prepend_bos: bool) -> Callable[[str], np.ndarray]:
    """From a text to its first ids; a special token's name inside a text is text like any other, as in counting."""
    import numpy as np

    from detoklens.corpus.encoding import TokenizersEncoder

    encoder = TokenizersEncoder(layer.vocabulary.to_json(), parse_special_tokens=False)
    first = [beginning_token(layer)] if prepend_bos else []

    def encode(text: str) -> np.ndarray:
        ids = encoder.encode([text.encode()]).ids[:length]
        return np.concatenate([np.asarray(first, np.int64), ids.astype(np.int64)])[:length]

    return encode


def beginning_token(layer: Layer) -> int:
    """The token that begins a text: by the config's ids where they have an embedding, else by its usual names."""
    config, tokenizer = layer.checkpoint.config, layer.vocabulary.tokenizer
    known = [config.get(name) for name in ("bos_token_id", "eos_token_id")]
    for token_id in (*known, *map(tokenizer.token_to_id, BEGINNINGS)):
        if isinstance(token_id, int) and 0 <= token_id < layer.vocab_size:
            return token_id
    raise TokenError(
        f"--prepend-bos: {layer.name} has neither a bos_token_id or eos_token_id with an embedding, nor a token named "
        f"{', '.join(BEGINNINGS)}; leave --prepend-bos out"
    )


def _counted(texts: Iterable[str]) -> Iterator[str]:
    """The same texts, with a line on stderr that says how many were read."""
    if not sys.stderr.isatty():
        yield from texts
        return
    from rich.console import Console

    with Console(stderr=True).status("reading documents") as status:
        for number, text in enumerate(texts, 1):
            if number % SEEN_OFTEN == 0:
                status.update(f"reading documents: {number:,}")
            yield text


def _describe(sample: Sample[np.ndarray], skipped: int) -> None:
    if not sample.documents:
        found = f"all {sample.read} documents are empty" if sample.read else "there is no document"
        raise CorpusError(f"no text to look at: {found} in what --text names; give documents with text")
    lengths = [len(ids) for ids in sample.documents]
    left_out = {"empty": sample.empty, "repeated": sample.repeated, "bad": skipped}
    others = "".join(f", {number:,} {what}" for what, number in left_out.items() if number)
    say(f"{len(lengths):,} documents of {min(lengths):,} to {max(lengths):,} tokens, of {sample.read:,} read{others}")


def say_too_short(documents: list[np.ndarray], query_positions: list[int]) -> None:
    """How many documents end before a query position? Said for each where there are some."""
    for position in query_positions:
        short = sum(len(ids) <= position for ids in documents)
        if short:
            say(f"{short:,} of {len(documents):,} documents are too short for query position {position}")


def check_reachable(query_positions: list[int], length: int | None) -> None:
    """Refuse a query position that no document of this length can have."""
    if length is not None and max(query_positions) >= length:
        raise RangeError(
            f"query position {max(query_positions)} lies beyond --length {length}; raise --length, or ask for less"
        )


@contextlib.contextmanager
def opened_runner(
    title: str, engine: str, workers: int | None, ray_address: str | None, out: Path | None, provenance: Provenance
) -> Iterator[Runner]:
    """Blocks run on the named engine; with a folder to write into, finished ones are kept there until all are done."""
    from detoklens.analyses.block_runs import Runner
    from detoklens.cli.watching import shown_steps
    from detoklens.engines import open_engine
    from detoklens.tables.parts import Parts

    with open_engine(engine, workers, ray_address) as running, shown_steps(title) as watch:
        parts = None if out is None else Parts.of_question(out, provenance)
        yield Runner(running, parts, watch)
