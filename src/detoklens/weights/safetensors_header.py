"""Where do a safetensors file's tensors lie? The header, read with suspicion.

A file is: 8 bytes (the header's length, little endian), the header (JSON), the tensors' bytes. The header comes from a
stranger, so each entry is checked against the file's size before a single byte is mapped or fetched.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod

from detoklens.errors import CheckpointError, shown
from detoklens.weights.strict_json import parse_json

LENGTH_BYTES = 8
LARGEST_HEADER = 100_000_000  # the format's own limit; GPT-2 XL's header has 65 kB

BYTES_PER_VALUE = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2,
    "I64": 8, "I32": 4, "I16": 2, "I8": 1,
    "U64": 8, "U32": 4, "U16": 2, "U8": 1, "BOOL": 1,
}  # fmt: skip


@dataclass(frozen=True)
class TensorEntry:
    """One tensor: its type as the file names it, its shape, and its bytes `start:end` counted from the file's start."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


def header_length(first_bytes: bytes, file_size: int, where: str) -> int:
    """How long is the header that these first 8 bytes announce?"""
    if len(first_bytes) < LENGTH_BYTES:
        raise CheckpointError(f"{where}: {len(first_bytes)} bytes are no safetensors file; download the file again")
    length = int.from_bytes(first_bytes[:LENGTH_BYTES], "little")
    if length > min(LARGEST_HEADER, file_size - LENGTH_BYTES):
        raise CheckpointError(
            f"{where}: the header claims {length:,} bytes but the file holds {file_size:,}; "
            "it is truncated or not a safetensors file, download it again"
        )
    return length


def parse_header(first_bytes: bytes, file_size: int, where: str) -> dict[str, TensorEntry]:
    """Which tensors does the file hold, and where? `first_bytes` reach at least to the header's end."""
    length = header_length(first_bytes, file_size, where)
    header = _parse_json(first_bytes[LENGTH_BYTES : LENGTH_BYTES + length], where)
    data_start = LENGTH_BYTES + length
    entries = {
        name: _entry(name, fields, data_start, file_size, where)
        for name, fields in header.items()
        if name != "__metadata__"
    }
    _check_layout(entries.values(), data_start, file_size, where)
    return entries


def _check_layout(entries: Iterable[TensorEntry], data_start: int, file_size: int, where: str) -> None:
    """The format asks that tensors lie side by side, up to the file's end: a wrong place is then seen as such."""
    end = data_start
    for entry in sorted(entries, key=lambda entry: (entry.start, entry.end)):
        if entry.start != end:
            raise CheckpointError(
                f"{where}: tensor {entry.name!r} begins at byte {entry.start:,}, the one before it ends at {end:,}; "
                "the file is corrupt, download it again"
            )
        end = entry.end
    if end != file_size:
        raise CheckpointError(
            f"{where}: the last tensor ends at byte {end:,} of {file_size:,}; the file is corrupt, download it again"
        )


def _parse_json(text: bytes, where: str) -> Mapping[str, object]:
    try:
        header = parse_json(text)
    except ValueError as error:
        raise CheckpointError(
            f"{where}: the safetensors header is not valid JSON ({error}); download it again"
        ) from error
    if not isinstance(header, dict):
        raise CheckpointError(f"{where}: the safetensors header is not a JSON object; download it again")
    return header


def _entry(name: str, fields: object, data_start: int, file_size: int, where: str) -> TensorEntry:
    match fields:
        case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [int(begin), int(end)]}:
            pass
        case _:
            raise CheckpointError(f"{where}: the header's entry for {name!r} is malformed; download it again")
    if not all(type(size) is int and size >= 0 for size in shape):
        raise CheckpointError(f"{where}: tensor {name!r} has the impossible shape {shown(shape)}; download it again")
    entry = TensorEntry(name, dtype, tuple(shape), data_start + begin, data_start + end)
    if not 0 <= begin <= end or entry.end > file_size:
        raise CheckpointError(
            f"{where}: tensor {name!r} claims bytes {begin:,} to {end:,} of {file_size - data_start:,}; "
            "the file is truncated or corrupt, download it again"
        )
    width = BYTES_PER_VALUE.get(dtype)
    if width is not None and prod(shape) * width != end - begin:
        raise CheckpointError(
            f"{where}: tensor {name!r} of shape {shown(shape)} and type {dtype} can't have {end - begin:,} bytes; "
            "the file is corrupt, download it again"
        )
    return entry
