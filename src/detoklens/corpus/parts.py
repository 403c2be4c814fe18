"""Counts of a part of the corpus as one file, the sum of many such files in bounded memory, and spilled runs.

A part is an Arrow stream of (key, count) in blocks, sorted by key, with the token counts and the tally in its header,
followed by a sha256 of everything before it. It is read one block at a time and not memory-mapped: mapped pages would
count as this process's memory.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
from jaxtyping import Int64

from detoklens.corpus.pairs import Run, add_all
from detoklens.corpus.records import Tally
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
    """Write sorted runs, each beginning after the one before it, as one part; refuse an incomplete set."""
    header = {"tally": json.dumps(vars(tally)), "tokens": tokens.astype("<i8").tobytes()}
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
        complete, rest = [], []
        for block, stream in fronts:
            end = int(np.searchsorted(block.keys, bound, side="right"))
            if end:
                complete.append(Run(block.keys[:end], block.counts[:end]))
            following = Run(block.keys[end:], block.counts[end:]) if end < len(block.keys) else next(stream, None)
            if following is not None:
                rest.append((following, stream))
        yield add_all(complete)
        fronts = rest


def totals_of(parts: Sequence[Part]) -> tuple[Int64[np.ndarray, "token"], Tally]:
    """The token counts and the tally of all parts together."""
    tally = Tally()
    for part in parts:
        tally.add(part.tally)
    return np.sum([part.tokens for part in parts], axis=0), tally


FAN = 16
"""Files that are merged at once."""

TEMPORARY = ".part-"
"""Part of every spilled file's name, so that a later run finds what a killed one left."""


class Spills:
    """The files of one shard, removed when the block ends.

    FAN files of a level become one of the next, so that memory and open files stay few however large the shard is.
    """

    def __init__(self, target: Path, keys: np.dtype[Any]) -> None:
        self._target = target
        self._keys = keys
        self._levels: list[list[Path]] = [[]]

    def put_away(self, run: Run) -> None:
        """Write a run that memory can't hold."""
        self._add(0, [run])

    def merged_with(self, last: Run) -> Iterable[Run]:
        """The spilled runs and the last run, merged in key order."""
        if not any(self._levels):
            return [last]
        self.put_away(last)
        while sum(map(len, self._levels)) > FAN:
            lowest = next(level for level, files in enumerate(self._levels) if files)
            self._raise(lowest)
        return merged_blocks([RunFile(path) for files in self._levels for path in files])

    def _add(self, level: int, runs: Iterable[Run]) -> None:
        if level == len(self._levels):
            self._levels.append([])
        path = self._target.with_name(f"{self._target.name}{TEMPORARY}{uuid.uuid4().hex}")
        self._levels[level].append(path)  # so that it is removed even if it is half written
        write_runs(path, runs, self._keys)
        if len(self._levels[level]) >= FAN:
            self._raise(level)

    def _raise(self, level: int) -> None:
        """Merge the files of a level into one of the next."""
        sources = self._levels[level]
        self._levels[level] = []
        try:
            self._add(level + 1, merged_blocks([RunFile(path) for path in sources]))
        finally:
            for path in sources:
                path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for path in [path for files in self._levels for path in files]:
            path.unlink(missing_ok=True)
