"""Byte ranges of a remote file, exact no matter how often the connection breaks.

An answer counts only if it states the requested bytes: status 206 with the exact Content-Range and Content-Length. A
server that ignores `Range` answers 200 with the whole file, which is read once, from the start to the last wanted byte.
"""

import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from detoklens.errors import first_line
from detoklens.hub.session import (
    AnswerError,
    BusyError,
    HTTPError,
    RefusedError,
    TransferError,
    TransferTimeout,
    open_response,
    refuse_compressed,
)

MAX_ATTEMPTS = 5  # in a row without a new byte
FIRST_PAUSE_SECONDS = 1.0  # doubled each time: 15 s in total
TEMPORARY_STATUSES = frozenset({408, 429, 500, 502, 503, 504})


@dataclass(frozen=True)
class RemoteFile:
    """One file of one commit; `etag` identifies its content."""

    name: str
    url: str
    size: int
    etag: str


def stream_ranges(remote: RemoteFile, ranges: Iterable[range]) -> Iterator[bytes]:
    """Yield the bytes of `ranges` (ascending, disjoint) in pieces, as they arrive.

    After a broken connection the next request starts at the first byte not yet yielded. A wrong answer is requested
    again at once, a temporary problem after a pause.
    """
    remaining, timeout = RemainingRanges(ranges), TransferTimeout(remote.url)
    failures = 0
    while remaining.ranges:
        try:
            for piece in _stream_response(remote, remaining, timeout):
                failures = 0
                yield piece
        except (AnswerError, HTTPError) as error:
            failures += 1
            if failures == MAX_ATTEMPTS:
                raise TransferError(f"{remote.url}: {first_line(error)}, {MAX_ATTEMPTS} times in a row") from error
            if isinstance(error, (BusyError, HTTPError)):
                time.sleep(FIRST_PAUSE_SECONDS * 2 ** (failures - 1))


class RemainingRanges:
    """The byte ranges still to be received."""

    def __init__(self, ranges: Iterable[range]) -> None:
        self.ranges = deque(part for part in ranges if part)

    def take(self, chunk: bytes, offset: int) -> Iterator[bytes]:
        """Yield the wanted parts of a chunk that lies at `offset` in the file, and count them as received."""
        end = offset + len(chunk)
        while self.ranges and self.ranges[0].start < end:
            first = self.ranges.popleft()
            stop = min(first.stop, end)
            if stop < first.stop:
                self.ranges.appendleft(range(stop, first.stop))
            yield chunk[first.start - offset : stop - offset]


def _stream_response(remote: RemoteFile, remaining: RemainingRanges, timeout: TransferTimeout) -> Iterator[bytes]:
    first = remaining.ranges[0]
    with open_response("GET", remote.url, timeout, Range=f"bytes={first.start}-{first.stop - 1}") as response:
        offset = _first_offset(response, remote, first)
        for chunk in response.iter_raw():
            timeout.advance(len(chunk))
            yield from remaining.take(chunk, offset)
            offset += len(chunk)
            if not remaining.ranges and response.status_code == 200:
                return


def _first_offset(response: Any, remote: RemoteFile, wanted: range) -> int:
    """Return where in the file the response starts; refuse, unread, anything but an exact answer."""
    if response.status_code in TEMPORARY_STATUSES:
        raise BusyError(f"HTTP {response.status_code}")
    if response.status_code >= 400:
        raise RefusedError(response)
    refuse_compressed(response)
    _expect(response, "Transfer-Encoding", None)  # a chunked body can end anywhere, despite its Content-Length
    if response.status_code == 206:
        _expect(response, "Content-Range", f"bytes {wanted.start}-{wanted.stop - 1}/{remote.size}")
        _expect(response, "Content-Length", str(len(wanted)))
        return wanted.start
    if response.status_code == 200:
        _expect(response, "Content-Length", str(remote.size))
        return 0
    raise AnswerError(f"HTTP {response.status_code}")


def _expect(response: Any, header: str, value: str | None) -> None:
    found = response.headers.get(header)
    if found != value:
        raise AnswerError(f"the answer has {header} {found and found[:80]!r}, expected {value!r}")
