"""Exactly the asked bytes of a remote file, however often the connection breaks.

A response is believed only if it says which bytes it carries and those are the asked ones: status 206 with the
exact Content-Range and Content-Length. A server that ignores `Range` answers 200 with the whole file: that is
read once from its beginning, the asked bytes are kept, and the connection is closed after the last of them.
Slow, but right.
"""

import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from detoklens.hub.answers import AnswerError, RefusedError, opened, refuse_compressed
from detoklens.hub.pace import GivenUpError, Pace
from detoklens.hub.plain_errors import first_line, transport_error
from detoklens.hub.repository import RemoteFile

ATTEMPTS = 5  # in a row without a single new byte
FIRST_PAUSE_SECONDS = 1.0  # doubled each time: 15 s in total before giving up
PASSING_TROUBLE = frozenset({408, 429, 500, 502, 503, 504})


class BusyError(AnswerError):
    """The hub is in trouble that may pass."""


def stream_ranges(remote: RemoteFile, ranges: Iterable[range]) -> Iterator[bytes]:
    """The bytes of `ranges` (ascending, disjoint), one after the other, in pieces as they arrive.

    After a broken connection the next request starts at the first byte that has not been handed on. A wrong answer is
    asked for again at once, trouble that may pass after a pause.
    """
    wanted, pace = _Wanted(ranges), Pace(remote.url)
    failures = 0
    while wanted.ranges:
        try:
            for piece in _one_response(remote, wanted, pace):
                failures = 0
                yield piece
        except (AnswerError, transport_error()) as error:
            failures += 1
            if failures == ATTEMPTS:
                raise GivenUpError(f"{remote.url}: {first_line(error)}, {ATTEMPTS} times in a row") from error
            if isinstance(error, BusyError) or not isinstance(error, AnswerError):
                time.sleep(FIRST_PAUSE_SECONDS * 2 ** (failures - 1))


class _Wanted:
    """The byte ranges that are still to come."""

    def __init__(self, ranges: Iterable[range]) -> None:
        self.ranges = deque(part for part in ranges if part)

    def keep(self, chunk: bytes, offset: int) -> Iterator[bytes]:
        """The wanted parts of a chunk that lies at `offset` in the file; they are ticked off."""
        end = offset + len(chunk)
        while self.ranges and self.ranges[0].start < end:
            first = self.ranges.popleft()
            stop = min(first.stop, end)
            if stop < first.stop:
                self.ranges.appendleft(range(stop, first.stop))
            yield chunk[first.start - offset : stop - offset]


def _one_response(remote: RemoteFile, wanted: _Wanted, pace: Pace) -> Iterator[bytes]:
    first = wanted.ranges[0]
    with opened(remote.url, pace, Range=f"bytes={first.start}-{first.stop - 1}") as response:
        offset = _first_byte(response, remote, first)
        for chunk in response.iter_raw():
            pace.advance(len(chunk))
            yield from wanted.keep(chunk, offset)
            offset += len(chunk)
            if not wanted.ranges and response.status_code == 200:
                return


def _first_byte(response: Any, remote: RemoteFile, asked: range) -> int:
    """At which byte of the file does this response begin? Anything but a full answer is refused unread."""
    if response.status_code in PASSING_TROUBLE:
        raise BusyError(f"HTTP {response.status_code}")
    if response.status_code >= 400:
        raise RefusedError(response)
    refuse_compressed(response)
    _expect(response, "Transfer-Encoding", None)  # a body in chunks ends when it likes, whatever its Content-Length
    if response.status_code == 206:
        _expect(response, "Content-Range", f"bytes {asked.start}-{asked.stop - 1}/{remote.size}")
        _expect(response, "Content-Length", str(len(asked)))
        return asked.start
    if response.status_code == 200:
        _expect(response, "Content-Length", str(remote.size))
        return 0
    raise AnswerError(f"HTTP {response.status_code}")


def _expect(response: Any, header: str, value: str | None) -> None:
    found = response.headers.get(header)
    if found != value:
        shown = found if found is None else found[:80]
        raise AnswerError(f"the answer has {header} {shown!r} where {value!r} was asked for")
