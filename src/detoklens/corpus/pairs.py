"""Count bigrams by sorting, in bounded memory: pairs become sorted runs, runs files, files are merged into the counts.

A pair is one number, suffix · V + prefix. Numbers are collected, sorted in place and run-length encoded; the sum of
sorted runs is a sorted run. Runs that grow too large are spilled to files and merged at the end.

A part holds the counts of a shard, or of several: an Arrow stream of (key, count) in blocks, sorted by key, with the
token counts and the tally in its header, followed by a sha256 of everything before it. Files are read one block at a
time and not memory-mapped: mapped pages would count as this process's memory.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Int64, UInt

from detoklens.corpus.counts_folder import BIGRAM_SCHEMA, SPILLED, TOKEN_SCHEMA, WHEN_FULL
from detoklens.corpus.encoding import Encoded
from detoklens.corpus.reading import Tally
from detoklens.engines import interrupts_deferred
from detoklens.errors import CountsError
from detoklens.kernels.tokens import add_runs, add_token_counts, run_lengths, write_pair_keys
from detoklens.writing import plain_output_errors, whole_files

COUNT_BYTES = 8

BLOCK_ROWS = 1 << 16
"""Rows per block: merging 16 files holds 16 blocks, about 20 MB."""

FAN = 16
"""Files that are merged at once."""

CHUNK = 1 << 20


class Run(NamedTuple):
    """Distinct pair keys in ascending order, each with its count."""

    keys: UInt[np.ndarray, "pair"]
    counts: Int64[np.ndarray, "pair"]

    @property
    def nbytes(self) -> int:
        return self.keys.nbytes + self.counts.nbytes


def key_type(vocabulary_size: int) -> np.dtype[Any]:
    """uint32 if every suffix · V + prefix fits (it sorts twice as fast), else uint64."""
    return np.dtype(np.uint32 if vocabulary_size**2 < 2**32 else np.uint64)


def add_all(runs: list[Run]) -> Run:
    """The sum of sorted runs, added in pairs."""
    while len(runs) > 1:
        with interrupts_deferred():
            pairs = [Run(*add_runs(*left, *right)) for left, right in zip(runs[::2], runs[1::2], strict=False)]
        runs = pairs + runs[2 * len(pairs) :]
    return runs[0]


class PairCounter:
    """Counts tokens and bigrams of batches; `spill` gets a run that does not fit into `memory` bytes.

    3/8 of the memory is for new keys with their runs (at most 24 bytes per key: the key, its run, the copy in the sum),
    half is for the current sum and its successor.
    """

    def __init__(self, vocabulary_size: int, memory: int, spill: Callable[[Run], None]) -> None:
        self.vocabulary_size = vocabulary_size
        self.tokens = np.zeros(vocabulary_size, np.int64)
        kind = key_type(vocabulary_size)
        self._keys = np.empty(max(2, memory * 3 // 8 // (2 * (kind.itemsize + COUNT_BYTES))), kind)
        self._filled = 0
        self._sum = self._empty = Run(np.empty(0, kind), np.empty(0, np.int64))
        self._largest_sum = memory // 4
        self._spill = spill

    def add(self, encoded: Encoded) -> None:
        """Count a batch of documents."""
        with interrupts_deferred():
            add_token_counts(encoded.ids, self.tokens)
        for ids, offsets in self._portions(encoded):
            if self._filled + len(ids) > len(self._keys):
                self._sort_keys()
            with interrupts_deferred():
                self._filled = write_pair_keys(ids, offsets, self.vocabulary_size, self._keys, self._filled)

    def add_counts(
        self, suffixes: Int64[np.ndarray, "row"], prefixes: Int64[np.ndarray, "row"], counts: Int64[np.ndarray, "row"]
    ) -> None:
        """Add bigrams that were counted before; a token's count is the number of bigrams that it ends."""
        np.add.at(self.tokens, suffixes, counts)
        keys = suffixes.astype(np.uint64) * np.uint64(self.vocabulary_size) + prefixes.astype(np.uint64)
        keys, rows = np.unique(keys.astype(self._keys.dtype), return_inverse=True)
        sums = np.zeros(len(keys), np.int64)
        np.add.at(sums, rows, counts)
        self._add(Run(keys, sums))

    def finish(self) -> Run:
        """The bigrams since the last spill."""
        self._sort_keys()
        return self._sum

    def _portions(self, encoded: Encoded) -> Iterator[Encoded]:
        """The batch, or pieces that overlap by one token if it exceeds the buffer of keys."""
        capacity = len(self._keys)
        if len(encoded.ids) <= capacity:
            yield encoded
            return
        for start, stop in pairwise(encoded.offsets):
            for place in range(start, stop, capacity - 1):
                ids = encoded.ids[place : min(place + capacity, stop)]
                yield Encoded(ids, np.array([0, len(ids)]))

    def _sort_keys(self) -> None:
        fresh = self._keys[: self._filled]
        fresh.sort()
        with interrupts_deferred():
            run = Run(*run_lengths(fresh))
        self._filled = 0
        self._add(run)

    def _add(self, run: Run) -> None:
        with interrupts_deferred():
            self._sum = Run(*add_runs(*self._sum, *run))
        if self._sum.nbytes > self._largest_sum:
            self._spill(self._sum)
            self._sum = self._empty


def merged_runs(paths: Sequence[Path]) -> Iterator[Run]:
    """The sum of files of runs, streamed in key order.

    Of each file one block is looked at. All keys up to the smallest last key of these blocks are complete: they are
    added up and handed on, and the block that ended there is followed by its next.
    """
    streams = [read_runs(path) for path in paths]
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


def read_runs(path: Path) -> Iterator[Run]:
    with pa.OSFile(os.fsencode(path)) as file, pa.ipc.open_stream(file) as blocks:
        for block in blocks:
            yield Run(block.column(0).to_numpy(), block.column(1).to_numpy())


def write_runs(path: Path, runs: Iterable[Run], keys: np.dtype[Any], header: dict[str, Any] | None = None) -> int:
    """Write sorted runs, each beginning after the one before it; return the number of bigrams."""
    schema = pa.schema([("key", pa.from_numpy_dtype(keys)), ("count", pa.int64())], metadata=header)
    bigrams = 0
    with pa.OSFile(os.fsencode(path), "wb") as file, pa.ipc.new_stream(file, schema) as writer:
        for run in runs:
            bigrams += int(run.counts.sum())
            for start in range(0, len(run.keys), BLOCK_ROWS):
                block = [pa.array(column[start : start + BLOCK_ROWS]) for column in run]
                writer.write_batch(pa.record_batch(block, schema=schema))
    return bigrams


def write_part(
    path: Path, runs: Iterable[Run], keys: np.dtype[Any], tokens: Int64[np.ndarray, "token"], tally: Tally
) -> None:
    """Write sorted runs, each beginning after the one before it, as one part; refuse an incomplete set."""
    header = {"tally": json.dumps(vars(tally)), "tokens": tokens.astype("<i8").tobytes()}
    with whole_files(path, when_full=WHEN_FULL) as (temporary,):
        bigrams = write_runs(temporary, runs, keys, header)
        tally.check_sums(path, int(tokens.sum()), bigrams)
        with temporary.open("r+b") as written:
            checksum = hashlib.file_digest(written, "sha256").digest()
            written.write(checksum)


def _is_undamaged(path: Path) -> bool:
    """Whether the file ends with the sha256 of its content."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        left = os.fstat(file.fileno()).st_size - digest.digest_size
        while left > 0 and (chunk := file.read(min(CHUNK, left))):
            digest.update(chunk)
            left -= len(chunk)
        return left == 0 and file.read() == digest.digest()


def add_parts(paths: Sequence[Path]) -> tuple[Iterator[Run], Int64[np.ndarray, "token"], Tally]:
    """The sum of parts: their pairs, streamed in key order, their token counts and their tally."""
    tokens, tally = [], Tally()
    for path in paths:
        if not _is_undamaged(path):  # damaged Arrow data may crash the process
            raise CountsError(f"{path}: damaged; delete it and run the same command to count its text again")
        with pa.OSFile(os.fsencode(path)) as file, pa.ipc.open_stream(file) as blocks:
            header = blocks.schema.metadata
        tally.add(Tally(**json.loads(header[b"tally"])))
        tokens.append(np.frombuffer(header[b"tokens"], "<i8"))
    return merged_runs(paths), np.sum(tokens, axis=0), tally


class Spills:
    """The files of one shard, removed when the block ends.

    FAN files of a level become one of the next, so that memory and open files stay few however large the shard is.
    """

    def __init__(self, target: Path, keys: np.dtype[Any]) -> None:
        self._target = target
        self._keys = keys
        self._levels: list[list[Path]] = [[]]

    def put_away(self, run: Run) -> None:
        """Write a run that does not fit into memory."""
        self._add(0, [run])

    def merged_with(self, last: Run) -> Iterable[Run]:
        """The spilled runs and the last run, merged in key order."""
        if not any(self._levels):
            return [last]
        self.put_away(last)
        while sum(map(len, self._levels)) > FAN:
            self._raise(next(level for level, files in enumerate(self._levels) if files))
        return merged_runs([path for files in self._levels for path in files])

    def _add(self, level: int, runs: Iterable[Run]) -> None:
        if level == len(self._levels):
            self._levels.append([])
        path = self._target.with_name(f"{self._target.name}{SPILLED}{uuid.uuid4().hex}")
        self._levels[level].append(path)  # so that it is removed even if it is half written
        with plain_output_errors(path, WHEN_FULL):
            write_runs(path, runs, self._keys)
        if len(self._levels[level]) >= FAN:
            self._raise(level)

    def _raise(self, level: int) -> None:
        """Merge the files of a level into one of the next."""
        sources, self._levels[level] = self._levels[level], []
        try:
            self._add(level + 1, merged_runs(sources))
        finally:
            for path in sources:
                path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for path in [path for files in self._levels for path in files]:
            path.unlink(missing_ok=True)


ROW_GROUP = 1 << 20
"""Rows per row group: what a lookup of one token reads, about 2 MB on disk."""

BIGRAM_ENCODING = {
    "suffix": "DELTA_BINARY_PACKED",
    "prefix": "DELTA_BINARY_PACKED",
    "count": "BYTE_STREAM_SPLIT",  # counts are unordered: delta encoding would double their size
}
COMPRESSION: dict[str, Any] = {"compression": "zstd", "compression_level": 3, "use_dictionary": False}


def write_bigrams(path: Path, groups: Iterable[Run], vocabulary_size: int) -> tuple[int, int]:
    """Write the pairs, streamed as `row_groups`; return the numbers of distinct and of all pairs."""
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
    """Regroup pairs into runs of ROW_GROUP, so that the file's bytes depend on the pairs alone."""
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
    """A separate function, so that its arrays are freed before the next run is merged."""
    suffixes, prefixes = np.divmod(run.keys, run.keys.dtype.type(vocabulary_size))
    columns = [suffixes.astype(np.uint32), prefixes.astype(np.uint32), run.counts]
    return pa.table(columns, schema=BIGRAM_SCHEMA)


def write_tokens(path: Path, counts: Int64[np.ndarray, "token"], texts: list[str]) -> None:
    """Write every token's count and text, so that counts can be read without the tokenizer."""
    columns = [np.arange(len(counts), dtype=np.uint32), counts, pa.array(texts, pa.string())]
    delta = {"token": "DELTA_BINARY_PACKED", "count": "DELTA_BINARY_PACKED"}
    with (
        whole_files(path, when_full=WHEN_FULL) as (temporary,),
        pa.OSFile(os.fsencode(temporary), "wb") as file,
    ):
        pq.write_table(pa.table(columns, schema=TOKEN_SCHEMA), file, column_encoding=delta, **COMPRESSION)
