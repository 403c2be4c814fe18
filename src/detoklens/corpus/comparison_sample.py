"""A small sample of the input, taken at the start: some documents from files spread over the whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from detoklens.corpus.pieces import read_texts
from detoklens.corpus.records import ReadingOptions, Tally
from detoklens.corpus.shards import Shard

SHARDS, DOCUMENTS, LONGEST = 32, 128, 4 << 10
"""128 documents, spread over at most 32 shards, and 4 kB of each: compared in less than a second."""


def sample_texts(shards: Sequence[Shard], reading: ReadingOptions, longest: int) -> list[bytes]:
    """Texts to compare tokenizing libraries on; the same ones for the same input."""
    chosen = shards[:: max(1, -(-len(shards) // SHARDS))]
    return [text for shard in chosen for text in islice(_texts(shard, reading, longest), -(-DOCUMENTS // len(chosen)))]


def _texts(shard: Shard, reading: ReadingOptions, longest: int) -> Iterator[bytes]:
    """Bad records are passed over here: whether they are an error is for the counting to say."""
    lenient = ReadingOptions(reading.text_field, reading.document_per_line, skip_bad=True)
    for piece in shard.pieces:
        for _, text in read_texts(piece, lenient, Tally(), longest):
            yield text[:LONGEST].decode(errors="ignore").encode()
