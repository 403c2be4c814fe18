"""Read token ids and bigram counts from files made by other tools.

| kind | files | documents end |
|---|---|---|
| bigram table | `.parquet` with columns id0, id1, count | at a separator, if it has one |
| rows of ids | `.parquet` or `.arrow` with a column of lists, as Hugging Face datasets have | with the row |
| flat ids | `.npy`, or `.bin` and `.npy` without a header | at a separator, or as listed in a `.csv.gz` |
| Megatron | `.bin` with an `.idx` | as listed in the `.idx` |
| infini-gram | `tokenized.*` | before each separator, all bits of which are 1 |
"""

from __future__ import annotations

import csv
import gzip
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types
from jaxtyping import Bool, Int64, UInt32

from detoklens.corpus.encoding import Encoded
from detoklens.corpus.inputs import Accepted, InputFile
from detoklens.corpus.parquet import ParquetFile
from detoklens.errors import CorpusError, first_line

PAIRS, ROWS, FLAT, MEGATRON, INFINI_GRAM = "bigram table", "rows of ids", "flat ids", "Megatron", "infini-gram"
PAIR_COLUMNS = ("id0", "id1", "count")
RAW_TYPES = ("uint16", "uint32")
MEGATRON_TYPES = {1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 8: "uint16"}
MEGATRON_MAGIC, NPY_MAGIC, ARROW_MAGIC = b"MMIDIDX\x00\x00", b"\x93NUMPY", b"ARROW1"
LLM_C_MAGIC = 20240520
LARGEST_TOTAL = 2**62
ROWS_AT_ONCE = 1 << 16


def _is_infini_gram(path: str) -> bool:
    return os.path.basename(path).startswith("tokenized.")


ACCEPTED = Accepted(
    lambda path: Path(path).suffix.lower() in (".parquet", ".arrow", ".npy", ".bin") or _is_infini_gram(path),
    "a .parquet of id0, id1, count, a .parquet or .arrow with a column of token ids, .npy and .bin files of token ids, "
    "Megatron's .bin with its .idx, and infini-gram's tokenized.*",
    companions=(".idx", ".csv.gz"),
)


@dataclass(frozen=True)
class ImportOptions:
    """How files of token ids are read."""

    ids_field: str = "input_ids"
    dtype: str | None = None
    """Type of the ids in files without a header."""
    separator: int | None = None
    """Id between documents, which is not counted."""
    packed: bool = False
    """Whether a row or a sequence holds several documents."""


@dataclass(frozen=True)
class TokenFile:
    """A file and what is needed to read it; `bounds` is a file that says where documents end."""

    name: str
    path: str
    kind: str
    dtype: str = ""
    offset: int = 0
    length: int = 0
    separator: int | None = None
    bounds: str | None = None
    columns: tuple[str, ...] = ()

    @property
    def pairs_may_cross(self) -> bool:
        return self.kind in (PAIRS, FLAT) and self.separator is None and self.bounds is None


@dataclass(frozen=True)
class TokenPiece:
    """Ids, or row groups, [start, stop) of a file."""

    file: TokenFile
    start: int
    stop: int


class TokenBatch(NamedTuple):
    """Ids of documents. The first id may be counted already: it is only the first of a bigram."""

    encoded: Encoded
    overlaps: bool
    documents: int
    documents_with_tokens: int


class PairBatch(NamedTuple):
    """Rows of a bigram table."""

    suffixes: Int64[np.ndarray, "row"]
    prefixes: Int64[np.ndarray, "row"]
    counts: Int64[np.ndarray, "row"]


def recognize(file: InputFile, options: ImportOptions, vocabulary_size: int) -> TokenFile:
    """Return the kind of a file; refuse one whose content is ambiguous."""
    suffix = Path(file.path).suffix.lower()
    if _is_infini_gram(file.path):
        return _infini_gram(file, options, vocabulary_size)
    if suffix in (".parquet", ".arrow"):
        return _table(file, options, suffix)
    index = Path(file.path).with_suffix(".idx")
    if suffix == ".bin" and index.is_file():
        dtype, length, _ = _read_megatron_index(file.name, str(index), file.size)
        if options.dtype not in (None, dtype):
            raise _refuse(file.name, f"holds {dtype} by its .idx, not {options.dtype}; omit dtype")
        return TokenFile(file.name, file.path, MEGATRON, dtype, 0, length, options.separator, str(index))
    dtype, offset, length = _flat_layout(file, options)
    if options.separator is not None and options.separator > np.iinfo(dtype).max:
        raise _refuse(file.name, f"ids of {np.iinfo(dtype).bits} bits can't hold the separator {options.separator:,}")
    bounds = Path(file.path).with_suffix(".csv.gz")
    bounds_path = str(bounds) if bounds.is_file() else None
    return TokenFile(file.name, file.path, FLAT, dtype, offset, length, options.separator, bounds_path)


def _refuse(name: str, problem: str) -> CorpusError:
    return CorpusError(f"{name}: {problem}")


def _start_of(path: str, size: int) -> bytes:
    with open(path, "rb") as file:
        return file.read(size)


def _infini_gram(file: InputFile, options: ImportOptions, vocabulary_size: int) -> TokenFile:
    """The separator comes first. Four bytes that are not all ones can't be a separator of 32 bits."""
    start = _start_of(file.path, 4)
    if start[:2] != b"\xff\xff":
        raise _refuse(
            file.name, "doesn't start with infini-gram's separator (bytes FF FF); rename it if it is another file"
        )
    dtype = options.dtype if start == b"\xff" * 4 else "uint16"
    if dtype is None:
        raise _refuse(file.name, "ids may have 16 or 32 bits; pass dtype=uint16 or uint32")
    if options.dtype not in (None, dtype):
        raise _refuse(file.name, f"holds ids of 16 bits, not {options.dtype}; omit dtype")
    separator = int(np.iinfo(dtype).max)
    if vocabulary_size > separator:
        raise _refuse(file.name, f"{dtype} is too small for a vocabulary of {vocabulary_size:,}; check the tokenizer")
    return TokenFile(file.name, file.path, INFINI_GRAM, dtype, 0, _items(file, dtype, 0), separator)


def _items(file: InputFile, dtype: str, offset: int) -> int:
    items, rest = divmod(file.size - offset, np.dtype(dtype).itemsize)
    if rest:
        raise _refuse(
            file.name,
            f"{file.size:,} bytes are not a whole number of {dtype} ids; check the dtype, or download it again",
        )
    return items


def _flat_layout(file: InputFile, options: ImportOptions) -> tuple[str, int, int]:
    """The type, the place of the first id in bytes, and the number of ids."""
    start = _start_of(file.path, 8)
    if start.startswith(NPY_MAGIC):
        with open(file.path, "rb") as opened:
            try:
                version = np.lib.format.read_magic(opened)
                read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                shape, _, dtype = read(opened)
            except ValueError as error:
                raise _refuse(file.name, f"a damaged .npy file ({first_line(error)}); download it again") from error
            offset = opened.tell()
        if len(shape) != 1 or dtype.kind not in "ui" or dtype.hasobject:
            raise _refuse(file.name, f"holds {dtype} of shape {shape}; a one-dimensional array of integers is needed")
        if options.dtype not in (None, dtype.name):
            raise _refuse(file.name, f"holds {dtype.name}, not {options.dtype}; omit dtype")
        if _items(file, dtype.str, offset) != shape[0]:
            raise _refuse(
                file.name, f"its header says {shape[0]:,} ids, but the file has another length; download it again"
            )
        return dtype.str, offset, shape[0]
    if len(start) == 8 and struct.unpack("<i", start[:4])[0] == LLM_C_MAGIC:
        raise _refuse(file.name, "llm.c files are not supported; save its ids with numpy.save")
    if options.dtype is None:
        raise _refuse(file.name, "no header gives the type of its ids; pass dtype=uint16 or uint32")
    dtype_name = np.dtype(options.dtype).newbyteorder("<").str
    return dtype_name, 0, _items(file, dtype_name, 0)


def _read_megatron_index(
    name: str, path: str, data_size: int
) -> tuple[str, int, Int64[np.ndarray, "document_and_end"]]:
    """The type and number of ids, and where documents start and the last one ends."""
    head = struct.Struct("<9sQBQQ")
    content = Path(path).read_bytes()
    if len(content) < head.size or content[:9] != MEGATRON_MAGIC:
        raise _refuse(path, "not a Megatron index (MMIDIDX); rebuild the dataset, or move this file away")
    _, version, code, sequences, documents = head.unpack_from(content)
    if version != 1 or code not in MEGATRON_TYPES:
        raise _refuse(
            path, f"version {version} with ids of type {code} is not supported (expected version 1 and integers)"
        )
    needed = head.size + 12 * sequences + 8 * documents
    if len(content) not in (needed, needed + sequences):  # a mode of each sequence may follow
        raise _refuse(path, f"{len(content):,} bytes long instead of {needed:,}; download it again")
    sizes = np.frombuffer(content, "<i4", sequences, head.size).astype(np.int64)
    pointers = np.frombuffer(content, "<i8", sequences, head.size + 4 * sequences)
    firsts = np.frombuffer(content, "<i8", documents, head.size + 12 * sequences)
    width = np.dtype(MEGATRON_TYPES[code]).itemsize
    ends = np.concatenate([[0], np.cumsum(sizes)])
    if np.any(sizes < 0) or not np.array_equal(pointers, ends[:-1] * width) or data_size != ends[-1] * width:
        raise _refuse(path, f"doesn't describe {name}: its sequences don't add up to the file; download both again")
    if not documents:
        firsts = np.arange(sequences + 1)
    if np.any(np.diff(firsts) < 0) or firsts[0] != 0 or firsts[-1] != sequences:
        raise _refuse(path, "its documents don't cover its sequences; download it again")
    return MEGATRON_TYPES[code], int(ends[-1]), ends[firsts]


def _table(file: InputFile, options: ImportOptions, suffix: str) -> TokenFile:
    if suffix == ".parquet":
        schema = ParquetFile(file.name, file.path).schema
    else:
        with _arrow_reader(file, "not a whole") as reader:
            schema = reader.schema
    if suffix == ".parquet" and set(PAIR_COLUMNS) <= set(schema.names):
        for column in PAIR_COLUMNS:
            if not types.is_integer(schema.field(column).type):
                raise _refuse(file.name, f"column {column!r} holds {schema.field(column).type}, not integers")
        return TokenFile(file.name, file.path, PAIRS, separator=options.separator, columns=PAIR_COLUMNS)
    field = options.ids_field
    if field not in schema.names:
        raise _refuse(
            file.name,
            f"has neither a column {field!r} nor id0, id1 and count, only {', '.join(schema.names)}; "
            "pass one as ids_field",
        )
    kind = schema.field(field).type
    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    if not is_list or not types.is_integer(kind.value_type):
        raise _refuse(file.name, f"column {field!r} holds {kind}, not lists of integers; pass another as ids_field")
    return TokenFile(file.name, file.path, ROWS, separator=options.separator, columns=(field,))


@contextmanager
def _arrow_reader(file: InputFile | TokenFile, damage: str) -> Iterator[Any]:
    """A reader of a stream, as `datasets` writes it, or of a file."""
    try:
        with pa.OSFile(os.fsencode(file.path)) as opened:
            is_file = opened.read(6) == ARROW_MAGIC
            opened.seek(0)
            with pa.ipc.open_file(opened) if is_file else pa.ipc.open_stream(opened) as reader:
                yield reader
    except (pa.ArrowException, OSError, EOFError) as error:
        raise _refuse(file.name, f"{damage} Arrow file ({first_line(error)}); download it again") from error


def pieces_of(file: TokenFile, target: int) -> Iterator[tuple[TokenPiece, int]]:
    """Yield (piece, bytes) of one file; where it is cut changes nothing."""
    if file.kind in (FLAT, MEGATRON, INFINI_GRAM):
        width = np.dtype(file.dtype).itemsize
        _document_starts(file)  # so that a damaged file of bounds is refused before anything is counted
        places = [*range(0, file.length, max(1, target // width)), file.length]
        for start, stop in pairwise(places):
            yield TokenPiece(file, start, stop), (stop - start) * width
    elif file.path.lower().endswith(".arrow"):
        yield TokenPiece(file, 0, 0), os.path.getsize(file.path)
    else:
        for group, (_, size) in enumerate(ParquetFile(file.name, file.path).sizes(file.columns)):
            yield TokenPiece(file, group, group + 1), size


def read_batches(piece: TokenPiece, vocabulary_size: int, longest: int) -> Iterator[TokenBatch | PairBatch]:
    """Yield what is in the piece; `longest` bytes of ids are read at once."""
    file = piece.file
    if file.kind in (FLAT, MEGATRON, INFINI_GRAM):
        block = max(1, longest // 8)
        for start in range(piece.start, piece.stop, block):
            yield _read_block(file, start, min(start + block, piece.stop), vocabulary_size)
        return
    if file.path.lower().endswith(".arrow"):
        batches = _arrow_batches(file)
    else:
        groups = range(piece.start, piece.stop)
        batches = ParquetFile(file.name, file.path).batches(file.columns, groups, longest, ROWS_AT_ONCE)
    for batch in batches:
        if file.kind == PAIRS:
            yield _pairs(file, batch, vocabulary_size)
        else:
            yield _rows(file, batch.column(0), vocabulary_size)


def _arrow_batches(file: TokenFile) -> Iterator[Any]:
    with _arrow_reader(file, "a damaged") as reader:
        is_file = hasattr(reader, "get_batch")
        for batch in map(reader.get_batch, range(reader.num_record_batches)) if is_file else reader:
            selected = batch.select(list(file.columns))
            selected.validate(full=True)  # damaged offsets would crash the process
            yield selected


def _pairs(file: TokenFile, batch: Any, vocabulary_size: int) -> PairBatch:
    first, second, counts = (_integers(file, batch.column(batch.schema.names.index(name))) for name in PAIR_COLUMNS)
    if file.separator is not None:
        is_kept = (first != file.separator) & (second != file.separator)
        first, second, counts = first[is_kept], second[is_kept], counts[is_kept]
    for ids in (first, second):
        _check_ids(file, ids, vocabulary_size)
    if len(counts) and (counts.min() < 1 or counts.astype(np.float64).sum() > LARGEST_TOTAL):
        raise _refuse(
            file.name, f"has a count of {counts.min()}; counts must be at least 1 and add up to less than 2^62"
        )
    return PairBatch(second, first, counts)


def _integers(file: TokenFile, column: Any) -> Int64[np.ndarray, "row"]:
    if column.null_count:
        raise _refuse(file.name, "an id or count is null; remove such rows")
    try:
        values: np.ndarray = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid as error:
        raise _refuse(file.name, f"has a number that is too large ({first_line(error)})") from error
    return values


def _rows(file: TokenFile, column: Any, vocabulary_size: int) -> TokenBatch:
    """Each row is a document."""
    if column.null_count:
        raise _refuse(file.name, f"{file.columns[0]!r} is null in a row; remove such rows")
    lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False).astype(np.int64)
    ids = _integers(file, column.flatten())
    starts = np.zeros(len(ids), bool)
    begins = (np.cumsum(lengths) - lengths)[lengths > 0]
    starts[begins] = True
    return _batch(file, ids, starts, False, len(lengths), vocabulary_size)


def _read_block(file: TokenFile, start: int, stop: int, vocabulary_size: int) -> TokenBatch:
    """Ids [start, stop), and the id before them, which may form a bigram with the first."""
    begin = max(0, start - 1)
    dtype = np.dtype(file.dtype)
    ids = np.fromfile(file.path, dtype, stop - begin, offset=file.offset + begin * dtype.itemsize)
    if len(ids) != stop - begin:
        raise _refuse(file.name, "the file was moved or truncated during the run")
    starts = np.zeros(len(ids), bool)
    starts[: begin == 0] = True
    documents = 0
    known = _document_starts(file)
    if known is not None:
        inside = known[np.searchsorted(known, begin) : np.searchsorted(known, stop)]
        starts[inside - begin] = True
        documents = len(known) - 1 if start == 0 else 0
    elif file.separator is None:
        documents = int(start == 0)
    return _batch(file, ids, starts, begin < start, documents, vocabulary_size)


def _batch(
    file: TokenFile, ids: np.ndarray, starts: Bool[np.ndarray, "id"], overlaps: bool, documents: int, size: int
) -> TokenBatch:
    """Remove separators; a document starts after each."""
    if file.separator is not None:
        is_separator = ids == file.separator
        starts[1:] |= is_separator[:-1]
        if file.kind == INFINI_GRAM:
            documents = int(np.count_nonzero(is_separator[int(overlaps) :]))
        overlaps = overlaps and not is_separator[0]
        ids, starts = ids[~is_separator], starts[~is_separator]
    _check_ids(file, ids, size)
    begun = int(np.count_nonzero(starts[int(overlaps) :]))
    if file.kind == FLAT and file.separator is not None and file.bounds is None:
        documents = begun
    offsets = np.concatenate([[0], np.flatnonzero(starts[1:]) + 1, [len(ids)]]) if len(ids) else np.zeros(1, np.int64)
    plain: UInt32[np.ndarray, "id"] = ids.astype(np.uint32)
    return TokenBatch(Encoded(plain, offsets.astype(np.int64)), overlaps, documents, begun)


def _check_ids(file: TokenFile, ids: np.ndarray, vocabulary_size: int) -> None:
    if not len(ids) or (ids.min() >= 0 and ids.max() < vocabulary_size):
        return
    wrong = ids.min() if ids.min() < 0 else ids.max()
    raise _refuse(
        file.name,
        f"token id {wrong} is not in the tokenizer's vocabulary (0 to {vocabulary_size - 1}); check the "
        "tokenizer, and for files without a header the dtype and the separator",
    )


def _document_starts(file: TokenFile) -> Int64[np.ndarray, "document_and_end"] | None:
    """Where documents start, and the last one ends; None if no other file stores that."""
    return None if file.bounds is None else _read_bounds(file, os.stat(file.bounds).st_mtime_ns)


@lru_cache(maxsize=4)
def _read_bounds(file: TokenFile, _changed: int) -> Int64[np.ndarray, "document_and_end"]:
    """Read each state of the file once: every block needs it."""
    assert file.bounds is not None
    if file.kind == MEGATRON:
        return _read_megatron_index(file.name, file.bounds, os.path.getsize(file.path))[2]
    bounds: list[np.ndarray] = []
    try:
        with gzip.open(file.bounds, "rt", encoding="utf-8", newline="") as opened:
            for number, row in enumerate(csv.reader(opened)):
                if number == 0 and row and not row[0].isdecimal():
                    continue  # names of columns
                bounds.append(np.array([int(row[0]), int(row[1])], np.int64))
    except (OSError, EOFError, ValueError, OverflowError, IndexError, csv.Error, zlib.error) as error:
        raise _refuse(file.bounds, f"not rows of start,end,… ({first_line(error)}); download it again") from error
    starts, ends = np.reshape(bounds, (-1, 2)).T
    starts, ends = np.append(starts, file.length), np.insert(ends, 0, 0)
    if not np.array_equal(starts, ends) or np.any(np.diff(starts) < 0):
        raise _refuse(file.bounds, f"its documents don't cover, in order, the {file.length:,} ids of {file.name}")
    return starts
