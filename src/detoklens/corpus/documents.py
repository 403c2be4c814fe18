"""The documents of a corpus, streamed from any input that can be counted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from detoklens.corpus.inputs import find_inputs
from detoklens.corpus.memory import default_share
from detoklens.corpus.pieces import Piece, read_texts, where
from detoklens.corpus.records import ReadingOptions, Tally
from detoklens.corpus.shards import cut_into_shards
from detoklens.corpus.tasks import longest_document


@dataclass(frozen=True)
class Document:
    """A text and its source."""

    where: str
    text: str


def read_documents(
    inputs: Sequence[str | Path],
    reading: ReadingOptions | None = None,
    limit_documents: int | None = None,
    tally: Tally | None = None,
) -> Iterator[Document]:
    """Stream the documents of files, folders, globs or a hub dataset, in order.

    A bad record is an error that names file and line, or is skipped with `reading.skip_bad`. `tally` counts what was
    read, repaired and skipped.
    """
    reading = reading or ReadingOptions()
    tally = tally if tally is not None else Tally()
    pieces = (piece for shard in cut_into_shards(find_inputs(inputs), reading) for piece in shard.pieces)
    return islice((document for piece in pieces for document in _of(piece, reading, tally)), limit_documents)


def _of(piece: Piece, reading: ReadingOptions, tally: Tally) -> Iterator[Document]:
    longest = longest_document(default_share())
    for number, text in read_texts(piece, reading, tally, longest):
        yield Document(where(piece, number, reading), text.decode())
