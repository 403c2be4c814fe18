"""The finished counts as files: bigrams sorted by suffix and prefix, tokens by id."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Int64

from detoklens.corpus.manifest import BIGRAM_SCHEMA, TOKEN_SCHEMA
from detoklens.corpus.pairs import Run
from detoklens.corpus.parts import WHEN_FULL
from detoklens.writing import whole_files

ROW_GROUP = 1 << 20
"""Rows of a row group: what is read to answer for one token, about 2 MB on disk."""

BIGRAM_ENCODING = {
    "suffix": "DELTA_BINARY_PACKED",
    "prefix": "DELTA_BINARY_PACKED",
    "count": "BYTE_STREAM_SPLIT",  # counts don't rise: as differences they would take twice the room
}
COMPRESSION: dict[str, Any] = {"compression": "zstd", "compression_level": 3, "use_dictionary": False}


def write_bigrams(path: Path, groups: Iterable[Run], vocabulary_size: int) -> tuple[int, int]:
    """Write the pairs, streamed as `row_groups`; how many are different, and how many are there in all?"""
    rows = total = 0
    with (
        whole_files(path, when_full=WHEN_FULL) as (temporary,),
        pa.OSFile(os.fsencode(temporary), "wb") as file,
        pq.ParquetWriter(file, BIGRAM_SCHEMA, column_encoding=BIGRAM_ENCODING, **COMPRESSION) as writer,
    ):
        for run in groups:
            writer.write_table(_bigram_table(run, vocabulary_size), row_group_size=ROW_GROUP)
            rows += len(run.keys)
            total += int(run.counts.sum())
    return rows, total


def row_groups(blocks: Iterable[Run]) -> Iterator[Run]:
    """The same pairs in runs of ROW_GROUP, the last one shorter: they depend on the pairs alone, so the bytes do."""
    waiting: list[Run] = []
    rows = 0
    for block in blocks:
        waiting.append(block)
        rows += len(block.keys)
        while rows >= ROW_GROUP:
            joined = _joined(waiting)
            yield Run(joined.keys[:ROW_GROUP], joined.counts[:ROW_GROUP])
            waiting, rows = [Run(joined.keys[ROW_GROUP:], joined.counts[ROW_GROUP:])], rows - ROW_GROUP
    if rows:
        yield _joined(waiting)


def _joined(runs: list[Run]) -> Run:
    return Run(np.concatenate([run.keys for run in runs]), np.concatenate([run.counts for run in runs]))


def _bigram_table(run: Run, vocabulary_size: int) -> pa.Table:
    suffix, prefix = np.divmod(run.keys, run.keys.dtype.type(vocabulary_size))
    columns = [suffix.astype(np.uint32), prefix.astype(np.uint32), run.counts]
    return pa.table(columns, schema=BIGRAM_SCHEMA)


def write_tokens(path: Path, counts: Int64[np.ndarray, "token"], texts: list[str]) -> None:
    """Write every token's count, with its text, so that counts can be read without the tokenizer."""
    columns = [np.arange(len(counts), dtype=np.uint32), counts, pa.array(texts, pa.string())]
    delta = {"token": "DELTA_BINARY_PACKED", "count": "DELTA_BINARY_PACKED"}
    with (
        whole_files(path, when_full=WHEN_FULL) as (temporary,),
        pa.OSFile(os.fsencode(temporary), "wb") as file,
    ):
        pq.write_table(pa.table(columns, schema=TOKEN_SCHEMA), file, column_encoding=delta, **COMPRESSION)
