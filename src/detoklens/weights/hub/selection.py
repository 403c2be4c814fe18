"""Which bytes of the remote files are needed, and which small safetensors file do they make up?

The small file holds the needed tensors in the order in which they lie in the remote files, so that neighbours
are one request, and the number of bytes on disk alone says where an interrupted transfer continues.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from detoklens.errors import CheckpointError
from detoklens.hub.ranges import stream_ranges
from detoklens.hub.repository import RemoteFile
from detoklens.weights.hub.access import LARGEST_JSON
from detoklens.weights.safetensors_header import LENGTH_BYTES, TensorEntry, header_length, parse_header

FIRST_GUESS = 65_536  # the headers of most checkpoints fit; the rest costs a second request


@dataclass(frozen=True)
class Selection:
    """The small file: its own header, then the bytes of `parts`, one remote file after the other."""

    header: bytes
    parts: tuple[tuple[RemoteFile, tuple[range, ...]], ...]

    @property
    def size(self) -> int:
        """How long is the finished file?"""
        return len(self.header) + sum(len(part) for _, ranges in self.parts for part in ranges)

    @property
    def key(self) -> str:
        """A name that changes with anything that changes a byte of the file, so that no two are mixed."""
        described = [(remote.etag, remote.size, [(r.start, r.stop) for r in rs]) for remote, rs in self.parts]
        return hashlib.sha256(self.header + json.dumps(described).encode()).hexdigest()[:16]

    def beyond(self, done: int) -> Iterator[tuple[RemoteFile, list[range]]]:
        """What is still to be fetched if the file's first `done` bytes are there?"""
        skip = done - len(self.header)
        for remote, ranges in self.parts:
            left = []
            for part in ranges:
                left.append(part[skip:] if skip > 0 else part)
                skip -= len(part)
            yield remote, [part for part in left if part]


def read_remote_header(remote: RemoteFile) -> dict[str, TensorEntry]:
    """Which tensors does a remote file hold, and where? One request, two for a very long header."""
    first = _bytes(remote, range(min(FIRST_GUESS, remote.size)))
    end = LENGTH_BYTES + header_length(first[:LENGTH_BYTES], remote.size, remote.url)
    if end > LARGEST_JSON:
        raise CheckpointError(f"{remote.url}: its header has {end:,} bytes, far more than it needs; not downloaded")
    return parse_header(first + _bytes(remote, range(len(first), end)), remote.size, remote.url)


def select(found: Mapping[RemoteFile, Sequence[TensorEntry]]) -> Selection:
    """The small file that holds these tensors of these files."""
    ordered = {remote: sorted(entries, key=lambda e: (e.start, e.end)) for remote, entries in found.items()}
    for remote, entries in ordered.items():
        _refuse_overlaps(remote, entries)
    parts = tuple((remote, _merged(entries)) for remote, entries in ordered.items())
    return Selection(_header([entry for entries in ordered.values() for entry in entries]), parts)


def _bytes(remote: RemoteFile, part: range) -> bytes:
    return b"".join(stream_ranges(remote, [part]))


def _refuse_overlaps(remote: RemoteFile, entries: Sequence[TensorEntry]) -> None:
    for before, after in pairwise(entries):
        if after.start < before.end:
            raise CheckpointError(
                f"{remote.url}: tensors {before.name!r} and {after.name!r} claim the same bytes; "
                "the file is corrupt, give another model"
            )


def _merged(entries: Sequence[TensorEntry]) -> tuple[range, ...]:
    """The tensors' byte ranges, those that touch made one."""
    merged: list[range] = []
    for entry in entries:
        if merged and merged[-1].stop == entry.start:
            merged[-1] = range(merged[-1].start, entry.end)
        else:
            merged.append(range(entry.start, entry.end))
    return tuple(merged)


def _header(entries: Sequence[TensorEntry]) -> bytes:
    """A safetensors header for tensors that follow each other without gaps, padded as the format wants it."""
    fields: dict[str, object] = {"__metadata__": {"format": "pt"}}
    position = 0
    for entry in entries:
        end = position + entry.end - entry.start
        fields[entry.name] = {"dtype": entry.dtype, "shape": entry.shape, "data_offsets": [position, end]}
        position = end
    text = json.dumps(fields, separators=(",", ":")).encode()
    text += b" " * (-len(text) % LENGTH_BYTES)
    return len(text).to_bytes(LENGTH_BYTES, "little") + text
