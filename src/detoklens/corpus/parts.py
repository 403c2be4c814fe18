"""Counts of a part of the corpus as one file, and the sum of many such files in bounded memory.

A part is an Arrow file of (key, count) in blocks, sorted by key; the token counts and the tally are in its header. It
is read a block at a time, never whole, and not mapped: pages of a mapped file would count as this process's memory.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Int64

from detoklens.corpus.files import written_whole
from detoklens.corpus.pairs import Run, add_all
from detoklens.corpus.records import Tally, sum_of
from detoklens.errors import CountsError

BLOCK_ROWS = 1 << 16
"""Rows of a block: merging 16 parts holds 16 such blocks, about 20 MB."""


class Part:
    """A part file, opened for reading."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file: Any = pa.ipc.open_file(pa.OSFile(os.fsencode(path)))
            header = self._file.schema.metadata
            self.tally = Tally(**json.loads(header[b"tally"]))
            self.tokens: Int64[np.ndarray, "token"] = np.frombuffer(header[b"tokens"], "<i8")
        except (pa.ArrowException, KeyError, TypeError, ValueError) as error:
            raise CountsError(f"{path}: damaged; delete it, and the same command counts its text again") from error

    def blocks(self) -> Iterator[Run]:
        for number in range(self._file.num_record_batches):
            block = self._file.get_batch(number)
            yield Run(block.column(0).to_numpy(), block.column(1).to_numpy())


def write_part(
    path: Path, runs: Iterable[Run], keys: np.dtype[Any], tokens: Int64[np.ndarray, "token"], tally: Tally
) -> None:
    """Write sorted runs, each beginning after the one before it, as one part."""
    header = {"tally": json.dumps(tally.as_dict()), "tokens": tokens.astype("<i8").tobytes()}
    schema = pa.schema([("key", pa.from_numpy_dtype(keys)), ("count", pa.int64())], metadata=header)
    with (
        written_whole(path) as temporary,
        pa.OSFile(os.fsencode(temporary), "wb") as file,
        pa.ipc.new_file(file, schema) as writer,
    ):
        for run in runs:
            for start in range(0, len(run.keys), BLOCK_ROWS):
                block = [pa.array(column[start : start + BLOCK_ROWS]) for column in run]
                writer.write_batch(pa.record_batch(block, schema=schema))


def merged_blocks(parts: Sequence[Part]) -> Iterator[Run]:
    """The sum of the parts, streamed in rising key order.

    Of each part one block is looked at. All keys up to the smallest last key of these blocks are complete: they are
    added up and handed on, and the block that ended there is followed by its next.
    """
    streams = [part.blocks() for part in parts]
    fronts = [(block, stream) for stream in streams if (block := next(stream, None)) is not None]
    while fronts:
        bound = min(block.keys[-1] for block, _ in fronts)
        ends = [int(np.searchsorted(block.keys, bound, side="right")) for block, _ in fronts]
        yield add_all([_slice(block, 0, end) for (block, _), end in zip(fronts, ends, strict=True) if end])
        fronts = [front for old, end in zip(fronts, ends, strict=True) if (front := _advance(*old, end))]


def _advance(block: Run, stream: Iterator[Run], end: int) -> tuple[Run, Iterator[Run]] | None:
    """What is left of a block, or the one after it; None at the end of the part."""
    if end < len(block.keys):
        return _slice(block, end, len(block.keys)), stream
    following = next(stream, None)
    return None if following is None else (following, stream)


def _slice(run: Run, start: int, stop: int) -> Run:
    return Run(run.keys[start:stop], run.counts[start:stop])


def sum_of_tokens(parts: Sequence[Part]) -> Int64[np.ndarray, "token"]:
    """The token counts of all parts together."""
    total = parts[0].tokens.copy()
    for part in parts[1:]:
        total += part.tokens
    return total


def sum_of_tallies(parts: Sequence[Part]) -> Tally:
    return sum_of([part.tally for part in parts])
