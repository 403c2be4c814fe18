"""Requests on huggingface_hub's session, bounded in time and memory no matter what the server sends.

Bodies are read as they arrive and never decompressed: a compressed answer, which was not asked for, is refused. Bodies
of redirects and of errors are not read at all. A read timeout ends silence; `TransferTimeout` also ends a server that
sends one byte at a time. Every way in which the hub, the connection or the cache can fail becomes one line.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from http.cookiejar import DefaultCookiePolicy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from huggingface_hub import constants, get_session, get_token
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled

from detoklens.errors import HubError, OutputError, first_line
from detoklens.progress import shown_steps
from detoklens.version import __version__

if TYPE_CHECKING:
    from detoklens.hub.repository import Repository

Result = TypeVar("Result")

SHA256 = re.compile(r"[0-9a-f]{64}")
LARGEST_JSON = 32_000_000  # bytes of an API answer; a list of 100,000 files has about 10 MB
MAX_REDIRECTS = 10
GRACE_SECONDS = 60.0
MIN_BYTES_PER_SECOND = 10_000
MAX_ATTEMPTS = 5  # in a row without a new byte
FIRST_PAUSE_SECONDS = 1.0  # doubled each time: 15 s in total
TEMPORARY_STATUSES = frozenset({408, 429, 500, 502, 503, 504})
HTTPError: type[Exception] = next(kind for kind in HfHubHTTPError.__mro__ if kind.__name__ == "HTTPError")
"""The base class of connection errors: that of httpx or httpx2, whichever huggingface_hub uses."""


class AnswerError(Exception):
    """The answer can't be used; another attempt may succeed."""


class BusyError(AnswerError):
    """The hub has a temporary problem."""


class RefusedError(Exception):
    """The hub refuses (401, 404, …); another attempt would not help."""

    def __init__(self, response: Any) -> None:
        self.status: int = response.status_code
        self.code: str = response.headers.get("X-Error-Code", "")
        self.file = str(response.request.url).rpartition("/")[2]
        super().__init__(f"HTTP {self.status}")


class TransferError(Exception):
    """The transfer was abandoned; the bytes received so far are kept."""


class TransferTimeout:
    """The deadline of one transfer, over all of its requests.

    Receiving n bytes may take GRACE_SECONDS + n / MIN_BYTES_PER_SECOND.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._started = time.monotonic()
        self._received = 0

    def seconds_left(self) -> float:
        """Seconds until the transfer has to stop; negative if it is too late."""
        return GRACE_SECONDS + self._received / MIN_BYTES_PER_SECOND - (time.monotonic() - self._started)

    def advance(self, count: int) -> None:
        """Record `count` received bytes and raise if they arrived too slowly."""
        self._received += count
        if self.seconds_left() < 0:
            raise TransferError(
                f"{self._url}: too slow, {self._received:,} bytes in {time.monotonic() - self._started:.0f} s "
                f"(required: {MIN_BYTES_PER_SECOND:,} bytes per second after {GRACE_SECONDS:.0f} s)"
            )

    def run(self, call: Callable[[], Result]) -> Result:
        """Return `call()`, or raise once the deadline has passed.

        The call runs in a daemon thread because a blocked read of slow headers can't be interrupted. A thread that is
        left behind ends with its connection.
        """
        future: Future[Result] = Future()

        def set_result() -> None:
            try:
                future.set_result(call())
            except BaseException as error:
                future.set_exception(error)  # raised again by future.result()

        threading.Thread(target=set_result, daemon=True).start()
        while not future.done():
            self.advance(0)
            wait([future], timeout=max(0, self.seconds_left()))
        return future.result()


def request(method: Literal["GET", "HEAD"], url: str) -> tuple[Mapping[str, str], bytes]:
    """Headers and body of an answer of limited size.

    Requested again if the connection fails, since the server may have closed an idle one.
    """
    try:
        return _request(method, url)
    except HTTPError:
        return _request(method, url)


def _request(method: str, url: str) -> tuple[Mapping[str, str], bytes]:
    timeout, body = TransferTimeout(url), bytearray()
    with open_response(method, url, timeout) as response:
        if response.status_code >= 400:
            raise RefusedError(response)
        if not (response.is_success or _describes_file(response)):
            raise AnswerError(f"it is HTTP {response.status_code}")
        if method == "GET":
            _refuse_compressed(response)
        for chunk in response.iter_raw():  # a HEAD's is empty, but reading to the end keeps the connection usable
            timeout.advance(len(chunk))
            body += chunk
            if len(body) > LARGEST_JSON:
                raise AnswerError(f"it has more than {LARGEST_JSON:,} bytes")
        return dict(response.headers), bytes(body)


@contextmanager
def open_response(method: str, url: str, timeout: TransferTimeout, **headers: str) -> Iterator[Any]:
    """Yield the response after all redirects, its body unread: use `response.iter_raw()`.

    Redirects are followed one by one, so that the session drops the token where the host changes.
    """
    session = get_session()
    session.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))  # a bad one would break later requests
    headers = {"User-Agent": f"detoklens/{__version__}", "Accept-Encoding": "identity", **headers}
    if token := None if constants.HF_HUB_DISABLE_IMPLICIT_TOKEN else get_token():  # build_hf_headers sends a request
        headers["Authorization"] = f"Bearer {token}"

    def send() -> Any:
        next_request = session.build_request(method, url, headers=headers, timeout=constants.HF_HUB_DOWNLOAD_TIMEOUT)
        for _ in range(MAX_REDIRECTS):
            response: Any = session.send(next_request, stream=True, follow_redirects=False)
            if timeout.seconds_left() < 0:  # the caller has given up
                response.close()
                timeout.advance(0)
            if response.next_request is None or (method == "HEAD" and _describes_file(response)):
                return response
            response.close()
            next_request = response.next_request
        raise AnswerError(f"it redirects more than {MAX_REDIRECTS} times")

    with closing(timeout.run(send)) as response:
        yield response


def _describes_file(response: Any) -> bool:
    """Whether a redirect to another host already states the file's etag and size."""
    return response.has_redirect_location and {"x-linked-etag", "x-linked-size"} <= response.headers.keys()


def _refuse_compressed(response: Any) -> None:
    """Refuse a body that could take any amount of memory once decompressed."""
    encoding = response.headers.get("Content-Encoding", "identity")
    if encoding != "identity":
        raise AnswerError(f"it is compressed ({encoding[:20]!r})")


@dataclass(frozen=True)
class RemoteFile:
    """One file of one commit; `etag` identifies its content."""

    name: str
    url: str
    size: int
    etag: str


def stream_ranges(remote: RemoteFile, ranges: Iterable[range]) -> Iterator[bytes]:
    """Yield the bytes of `ranges` (ascending, disjoint) in pieces, as they arrive, however often the connection breaks.

    An answer counts only if it states the requested bytes: status 206 with the exact Content-Range and Content-Length.
    A server that ignores `Range` answers 200 with the whole file, which is read up to the last wanted byte.

    After a broken connection the next request starts at the first byte not yet yielded. A wrong answer is requested
    again at once, a temporary problem after a pause.
    """
    left, timeout = deque(part for part in ranges if part), TransferTimeout(remote.url)
    failures = 0
    while left:
        try:
            first = left[0]
            span = f"bytes={first.start}-{first.stop - 1}"
            with open_response("GET", remote.url, timeout, Range=span) as response:
                offset = _first_offset(response, remote, first)
                for chunk in response.iter_raw():
                    timeout.advance(len(chunk))
                    for piece in take_wanted(left, chunk, offset):
                        failures = 0
                        yield piece
                    offset += len(chunk)
                    if not left and response.status_code == 200:
                        return
        except (AnswerError, HTTPError) as error:
            failures += 1
            if failures == MAX_ATTEMPTS:
                raise TransferError(f"{remote.url}: {first_line(error)}, {MAX_ATTEMPTS} times in a row") from error
            if isinstance(error, (BusyError, HTTPError)):
                time.sleep(FIRST_PAUSE_SECONDS * 2 ** (failures - 1))


def take_wanted(ranges: deque[range], chunk: bytes, offset: int) -> Iterator[bytes]:
    """Yield the wanted parts of a chunk that lies at `offset` in the file, and remove them from `ranges`."""
    end = offset + len(chunk)
    while ranges and ranges[0].start < end:
        first = ranges.popleft()
        stop = min(first.stop, end)
        if stop < first.stop:
            ranges.appendleft(range(stop, first.stop))
        yield chunk[first.start - offset : stop - offset]


def _first_offset(response: Any, remote: RemoteFile, wanted: range) -> int:
    """Return where in the file the response starts; refuse, unread, anything but an exact answer."""
    if response.status_code in TEMPORARY_STATUSES:
        raise BusyError(f"HTTP {response.status_code}")
    if response.status_code >= 400:
        raise RefusedError(response)
    _refuse_compressed(response)
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


@dataclass(frozen=True)
class Assembly:
    """A file to be made of a header and of byte ranges of remote files, one after the other.

    As the ranges of a file are ascending and disjoint, the length of a partial file says where to resume.
    """

    parts: tuple[tuple[RemoteFile, tuple[range, ...]], ...]
    header: bytes = b""

    @property
    def size(self) -> int:
        """Length of the finished file in bytes."""
        return len(self.header) + sum(len(part) for _, ranges in self.parts for part in ranges)

    @property
    def key(self) -> str:
        """A name that changes with every byte of the file, so that no two partial files are mixed."""
        described = [(remote.etag, remote.size, [(r.start, r.stop) for r in rs]) for remote, rs in self.parts]
        return hashlib.sha256(self.header + json.dumps(described).encode()).hexdigest()[:16]

    @property
    def sha256(self) -> str | None:
        """The hash of the finished file, if it is known: the etag of large files is that of their content."""
        if self.header or len(self.parts) != 1:
            return None
        remote, ranges = self.parts[0]
        return remote.etag if ranges == (range(remote.size),) and SHA256.fullmatch(remote.etag) else None

    def after(self, done: int) -> Iterator[tuple[RemoteFile, list[range]]]:
        """Yield the ranges left to fetch once the file's first `done` bytes have arrived."""
        skip = done - len(self.header)
        for remote, ranges in self.parts:
            left = []
            for part in ranges:
                left.append(part[skip:] if skip > 0 else part)
                skip -= len(part)
            yield remote, [part for part in left if part]


def download(assembly: Assembly, target: Path, title: str | None = None) -> None:
    """Make the file `target`, with a progress bar of this title; the next call resumes an interrupted one."""
    partial = target.with_name(f".{target.name}.{assembly.key}.partial")
    size, header = assembly.size, assembly.header
    with partial.open("a+b") as file, shown_steps(title) if title else nullcontext() as progress:
        done = file.tell()
        file.seek(0)
        if not len(header) <= done <= size or file.read(len(header)) != header:
            file.truncate(0)
            done = file.write(header)
        if size - done > (free := shutil.disk_usage(target.parent).free):
            raise OSError(errno.ENOSPC, f"{size - done:,} bytes are needed and {free:,} free", str(target.parent))
        for remote, ranges in assembly.after(done):
            for piece in stream_ranges(remote, ranges):
                done += file.write(piece)
                if progress is not None:
                    progress(done, size)
        file.flush()
        os.fsync(file.fileno())
        file.seek(0)
        expected = assembly.sha256
        if expected is not None and hashlib.file_digest(file, "sha256").hexdigest() != expected:
            partial.unlink()
            raise AnswerError(f"the content of {assembly.parts[0][0].name} does not match its ETag {expected}")
    partial.replace(target)
    for stale in target.parent.glob(f".{target.name}.*.partial"):
        stale.unlink()


@contextmanager
def one_line_errors(repository: Repository, revision: str | None) -> Iterator[None]:
    """Turn errors of the hub, the connection and the cache into a HubError."""
    local = "a local folder" if repository.kind == "model" else "local files"
    try:
        yield
    except HFValidationError as error:
        raise HubError(
            f"{repository.repo_id!r} is neither a local folder nor the name of a {repository.kind} on the hub (e.g. "
            "gpt2 or openai-community/gpt2-xl); check the spelling"
        ) from error
    except RefusedError as error:
        raise HubError(_describe_refusal(error, repository, revision, local)) from error
    except AnswerError as error:
        raise HubError(
            f"{repository}: unusable answer from {constants.ENDPOINT}: {first_line(error)}; check HF_ENDPOINT, try "
            f"again later, or use {local}"
        ) from error
    except TransferError as error:
        raise HubError(f"{first_line(error)}; run the same command again to resume, or use {local}") from error
    except (OfflineModeIsEnabled, HTTPError) as error:
        raise HubError(
            f"there is no {'folder' if repository.kind == 'model' else 'file'} {repository.repo_id} here; if it is on "
            f"the hub, check the connection: {constants.ENDPOINT} can't be reached ({first_line(error)})"
        ) from error
    except (OSError, OutputError) as error:
        reason = error if isinstance(error, OSError) else error.__cause__
        raise HubError(
            f"can't use the hub's cache ({first_line(reason or error)}); free some space, or set HF_HOME to another "
            "folder"
        ) from error


def _describe_refusal(error: RefusedError, repository: Repository, revision: str | None, local: str) -> str:
    page = f"{constants.ENDPOINT}/{repository}"
    if error.status in (401, 403):
        return (
            f"{repository}: access refused (HTTP {error.status}); the {repository.kind} is gated, private or "
            f"misspelled: accept its licence at {page}, then log in with `hf auth login` or set HF_TOKEN"
        )
    if error.code == "RevisionNotFound":
        return f"{repository} has no revision {revision!r}; see {page}/tree/main"
    if error.code == "EntryNotFound":
        return f"{repository} has no {error.file} on the hub; choose another {repository.kind}"
    if error.status == 404:
        found = f"no {repository.kind} {repository.repo_id!r} on {constants.ENDPOINT} (HTTP 404)"
        return f"{found}; check the name, or use {local}"
    return f"{repository}: HTTP {error.status} from {constants.ENDPOINT}; try again later, or use {local}"
