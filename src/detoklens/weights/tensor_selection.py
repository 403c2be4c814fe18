"""A small safetensors file made of the needed tensors of remote ones.

It holds the tensors in the order of the remote files, so adjacent tensors are one request, and the length of a partial
file alone says where to resume.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from detoklens.errors import CheckpointError
from detoklens.hub.ranges import RemoteFile, stream_ranges
from detoklens.progress import shown_steps
from detoklens.weights.safetensors_files import LENGTH_BYTES, TensorEntry, header_length, parse_header

FIRST_REQUEST_BYTES = 65_536  # most headers fit; a longer one takes a second request
LARGEST_HEADER = 32_000_000  # parsed JSON takes up to 25 times as much memory


@dataclass(frozen=True)
class Selection:
    """The small file: its header, then the bytes of `parts`, one remote file after the other."""

    header: bytes
    parts: tuple[tuple[RemoteFile, tuple[range, ...]], ...]

    @property
    def size(self) -> int:
        """Length of the finished file in bytes."""
        return len(self.header) + sum(len(part) for _, ranges in self.parts for part in ranges)

    @property
    def key(self) -> str:
        """A name that changes with every byte of the file, so that no two partial files are mixed."""
        described = [(remote.etag, remote.size, [(r.start, r.stop) for r in rs]) for remote, rs in self.parts]
        return hashlib.sha256(self.header + json.dumps(described).encode()).hexdigest()[:16]

    def after(self, done: int) -> Iterator[tuple[RemoteFile, list[range]]]:
        """Yield what is left to fetch once the file's first `done` bytes are there."""
        skip = done - len(self.header)
        for remote, ranges in self.parts:
            left = []
            for part in ranges:
                left.append(part[skip:] if skip > 0 else part)
                skip -= len(part)
            yield remote, [part for part in left if part]


def read_remote_header(remote: RemoteFile) -> dict[str, TensorEntry]:
    """Return the tensors of a remote file and their byte ranges."""
    first = _read(remote, range(min(FIRST_REQUEST_BYTES, remote.size)))
    end = LENGTH_BYTES + header_length(first[:LENGTH_BYTES], remote.size, remote.url)
    if end > LARGEST_HEADER:
        raise CheckpointError(f"{remote.url}: the header has {end:,} bytes, limit {LARGEST_HEADER:,}; not downloaded")
    return parse_header(first + _read(remote, range(len(first), end)), remote.size, remote.url)


def select(found: Mapping[RemoteFile, Sequence[TensorEntry]]) -> Selection:
    """Plan the small file that holds these tensors of these files."""
    ordered = {remote: sorted(entries, key=lambda e: (e.start, e.end)) for remote, entries in found.items()}
    for remote, entries in ordered.items():
        for before, after in pairwise(entries):
            if after.start < before.end:
                raise CheckpointError(
                    f"{remote.url}: tensors {before.name!r} and {after.name!r} overlap; the file is corrupt, choose "
                    "another model"
                )
    parts = tuple((remote, _merge(entries)) for remote, entries in ordered.items())
    return Selection(_header([entry for entries in ordered.values() for entry in entries]), parts)


def download(selection: Selection, target: Path, title: str) -> None:
    """Download the selected bytes to `target`, resuming an earlier attempt.

    They are appended to `<target>.<key>.partial`. The key depends on the remote etags and on the selection, so only the
    same file is resumed.
    """
    partial = target.with_name(f"{target.name}.{selection.key}.partial")
    done = _resumable_length(partial, selection)
    with partial.open("r+b" if done else "wb") as file, shown_steps(f"{title} (bytes)") as progress:
        file.truncate(done)
        file.seek(done)
        if not done:
            done = file.write(selection.header)
        for remote, ranges in selection.after(done):
            for piece in stream_ranges(remote, ranges):
                done += file.write(piece)
                if progress is not None:
                    progress(done, selection.size)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(target)
    for stale in target.parent.glob(f"{target.name}.*.partial"):
        stale.unlink()


def _read(remote: RemoteFile, part: range) -> bytes:
    return b"".join(stream_ranges(remote, [part]))


def _resumable_length(partial: Path, selection: Selection) -> int:
    """Return how many bytes of an earlier attempt can be kept: none, unless they start with the same header."""
    if not partial.is_file():
        return 0
    with partial.open("rb") as file:
        same = file.read(len(selection.header)) == selection.header
    length = partial.stat().st_size
    return length if same and length <= selection.size else 0


def _merge(entries: Sequence[TensorEntry]) -> tuple[range, ...]:
    """Return the tensors' byte ranges, adjacent ones merged."""
    merged: list[range] = []
    for entry in entries:
        if merged and merged[-1].stop == entry.start:
            merged[-1] = range(merged[-1].start, entry.end)
        else:
            merged.append(range(entry.start, entry.end))
    return tuple(merged)


def _header(entries: Sequence[TensorEntry]) -> bytes:
    """Return the safetensors header of tensors without gaps, padded so that they stay aligned."""
    fields: dict[str, object] = {"__metadata__": {"format": "pt"}}
    position = 0
    for entry in entries:
        end = position + entry.end - entry.start
        fields[entry.name] = {"dtype": entry.dtype, "shape": entry.shape, "data_offsets": [position, end]}
        position = end
    text = json.dumps(fields, separators=(",", ":")).encode()
    text += b" " * (-len(text) % LENGTH_BYTES)
    return len(text).to_bytes(LENGTH_BYTES, "little") + text
