"""Exactly the asked bytes of a remote file, however often the connection breaks.

A response is believed only if it says which bytes it carries and those are the asked ones: status 206 with the
exact Content-Range and Content-Length. A server that ignores `Range` answers 200 with the whole file: that is
read once from its beginning, the asked bytes are kept, and the connection is closed after the last of them.
Slow, but right.

Redirects (the hub sends large files' readers to its CDN) are followed by huggingface_hub's session, which drops
the token where the host changes.
"""

import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from detoklens.errors import CheckpointError
from detoklens.weights.hub.access import RemoteFile, request_headers
from detoklens.weights.hub.plain_errors import first_line, transport_error

ATTEMPTS = 5  # in a row without a single new byte
FIRST_PAUSE_SECONDS = 1.0  # doubled each time: 15 s in total before giving up
PASSING_TROUBLE = frozenset({408, 429, 500, 502, 503, 504})


class TransferError(Exception):
    """A response that can't be used; another one may be better."""


def stream_ranges(remote: RemoteFile, ranges: Iterable[range]) -> Iterator[bytes]:
    """The bytes of `ranges` (ascending, disjoint), one after the other, in pieces as they arrive.

    After a broken connection the next request starts at the first byte that has not been handed on.
    """
    wanted = _Wanted(ranges)
    failures = 0
    while wanted.ranges:
        try:
            for piece in _one_response(remote, wanted):
                failures = 0
                yield piece
        except (TransferError, transport_error()) as error:
            _refuse_for_good(error)
            failures += 1
            if failures == ATTEMPTS:
                raise CheckpointError(
                    f"{remote.url}: {first_line(error)}, {ATTEMPTS} times in a row; run the same again to "
                    "continue from what has arrived, or give a local folder"
                ) from error
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


def _one_response(remote: RemoteFile, wanted: _Wanted) -> Iterator[bytes]:
    from huggingface_hub import constants, get_session

    first = wanted.ranges[0]
    headers = {**request_headers(), "Range": f"bytes={first.start}-{first.stop - 1}"}
    timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT
    with get_session().stream("GET", remote.url, headers=headers, timeout=timeout) as response:
        offset = _first_byte(response, remote, first)
        for chunk in response.iter_raw():
            yield from wanted.keep(chunk, offset)
            offset += len(chunk)
            if not wanted.ranges and response.status_code == 200:
                return


def _first_byte(response: Any, remote: RemoteFile, asked: range) -> int:
    """At which byte of the file does this response begin? Anything but a full answer is refused unread."""
    from huggingface_hub.utils import hf_raise_for_status

    if response.status_code in PASSING_TROUBLE:
        raise TransferError(f"HTTP {response.status_code}")
    hf_raise_for_status(response)
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise TransferError(f"the answer is compressed ({response.headers['Content-Encoding']})")
    if response.status_code == 206:
        _expect(response, "Content-Range", f"bytes {asked.start}-{asked.stop - 1}/{remote.size}")
        _expect(response, "Content-Length", str(len(asked)))
        return asked.start
    if response.status_code == 200:
        _expect(response, "Content-Length", str(remote.size))
        return 0
    raise TransferError(f"HTTP {response.status_code}")


def _expect(response: Any, header: str, value: str) -> None:
    found = response.headers.get(header)
    if found != value:
        raise TransferError(f"the answer has {header} {found!r} where {value!r} was asked for")


def _refuse_for_good(error: Exception) -> None:
    """A refusal (401, 404, 416, …) will not change by asking again."""
    from huggingface_hub.errors import HfHubHTTPError

    if isinstance(error, HfHubHTTPError):
        raise error
