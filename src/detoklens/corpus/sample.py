"""A small sample of the input, taken at the start: some documents from files spread over the whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from detoklens.corpus.pieces import read_texts
from detoklens.corpus.records import ReadingOptions, Tally
from detoklens.corpus.shards import Shard

SHARDS, DOCUMENTS, LONGEST = 16, 16, 16 << 10
"""At most 16 documents from each of 16 shards, and 16 kB of each: 4 MB at the very most, tokenized in seconds."""

ENOUGH = 1 << 20


def sample_texts(shards: Sequence[Shard], reading: ReadingOptions, longest: int) -> list[bytes]:
    """Texts to compare tokenizing libraries on; the same ones for the same input."""
    step = max(1, len(shards) // SHARDS)
    texts: list[bytes] = []
    for shard in shards[::step]:
        texts.extend(islice(_texts(shard, reading, longest), DOCUMENTS))
        if sum(map(len, texts)) > ENOUGH:
            break
    return texts


def _texts(shard: Shard, reading: ReadingOptions, longest: int) -> Iterator[bytes]:
    """Bad records are passed over here: whether they are an error is for the counting to say."""
    lenient = ReadingOptions(reading.text_field, reading.document_per_line, skip_bad=True)
    for piece in shard.pieces:
        for _, text in read_texts(piece, lenient, Tally(), longest):
            yield text[:LONGEST].decode(errors="ignore").encode()
