"""Counts of a part of the corpus as one file, and the sum of many such files in bounded memory.

A part is an Arrow stream of (key, count) in blocks, sorted by key, with the token counts and the tally in its header,
followed by a sha256 of everything before it. It is read one block at a time and not memory-mapped: mapped pages would
count as this process's memory.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Int64

from detoklens.corpus.pairs import Run, add_all
from detoklens.corpus.records import Tally, sum_of
from detoklens.errors import CountsError
from detoklens.writing import plain_output_errors, whole_files

WHEN_FULL = "finished parts are kept: free some space and run the same command again to continue"

BLOCK_ROWS = 1 << 16
"""Rows per block: merging 16 parts holds 16 blocks, about 20 MB."""

CHUNK = 1 << 20


class RunFile:
    """A file of sorted runs, opened only if its checksum is right: damaged Arrow data may crash the process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not _is_undamaged(path):
            raise CountsError(f"{path}: damaged; delete it, and the same command counts its text again")

    def blocks(self) -> Iterator[Run]:
        with pa.OSFile(os.fsencode(self.path)) as file, pa.ipc.open_stream(file) as blocks:
            for block in blocks:
                yield Run(block.column(0).to_numpy(), block.column(1).to_numpy())


class Part(RunFile):
    """The file of a part: its runs, token counts, and tally."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        with pa.OSFile(os.fsencode(path)) as file, pa.ipc.open_stream(file) as blocks:
            header = blocks.schema.metadata
        self.tally = Tally(**json.loads(header[b"tally"]))
        self.tokens: Int64[np.ndarray, "token"] = np.frombuffer(header[b"tokens"], "<i8")


def write_part(
    path: Path, runs: Iterable[Run], keys: np.dtype[Any], tokens: Int64[np.ndarray, "token"], tally: Tally
) -> None:
    """Write sorted runs, each beginning after the one before it, as one part, unless they are not all of its text's."""
    header = {"tally": json.dumps(tally.as_dict()), "tokens": tokens.astype("<i8").tobytes()}
    with whole_files(path, when_full=WHEN_FULL) as (temporary,):
        bigrams = _write(temporary, runs, keys, header)
        tally.check_sums(path, int(tokens.sum()), bigrams)


def write_runs(path: Path, runs: Iterable[Run], keys: np.dtype[Any]) -> None:
    """Write sorted runs, each beginning after the one before it, to be read again soon: a crash may lose them."""
    with plain_output_errors(path, WHEN_FULL):
        _write(path, runs, keys, {})


def _write(path: Path, runs: Iterable[Run], keys: np.dtype[Any], header: dict[str, Any]) -> int:
    """Write the runs and their checksum; return the number of bigrams."""
    schema = pa.schema([("key", pa.from_numpy_dtype(keys)), ("count", pa.int64())], metadata=header)
    bigrams = 0
    with pa.OSFile(os.fsencode(path), "wb") as file, pa.ipc.new_stream(file, schema) as writer:
        for run in runs:
            bigrams += int(run.counts.sum())
            for start in range(0, len(run.keys), BLOCK_ROWS):
                block = [pa.array(column[start : start + BLOCK_ROWS]) for column in run]
                writer.write_batch(pa.record_batch(block, schema=schema))
    with path.open("r+b") as written:
        checksum = hashlib.file_digest(written, "sha256").digest()
        written.write(checksum)
    return bigrams


def _is_undamaged(path: Path) -> bool:
    """Whether the file ends with the sha256 of its content."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        left = os.fstat(file.fileno()).st_size - digest.digest_size
        while left > 0 and (chunk := file.read(min(CHUNK, left))):
            digest.update(chunk)
            left -= len(chunk)
        return left == 0 and file.read() == digest.digest()


def merged_blocks(parts: Sequence[RunFile]) -> Iterator[Run]:
    """The sum of the parts, streamed in key order.

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
    """The rest of a block, or the next one; None at the end of the part."""
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
