"""Requests on huggingface_hub's session, bounded in time and memory no matter what the server sends.

Bodies are read as they arrive and never decompressed: a compressed answer, which was not asked for, is refused. Bodies
of redirects and of errors are not read at all. A read timeout ends silence; `TransferTimeout` also ends a server that
sends one byte at a time. Every way in which the hub, the connection or the cache can fail becomes one line.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager
from http.cookiejar import DefaultCookiePolicy
from typing import TYPE_CHECKING, Any, TypeVar

from huggingface_hub import constants, get_session, get_token
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled

from detoklens.errors import HubError, OutputError, first_line, parse_json
from detoklens.version import __version__

if TYPE_CHECKING:
    from detoklens.hub.repository import Repository

Result = TypeVar("Result")

LARGEST_JSON = 32_000_000  # bytes of an API answer; a list of 100,000 files has about 10 MB
MAX_REDIRECTS = 10
GRACE_SECONDS = 60.0
MIN_BYTES_PER_SECOND = 10_000
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


def read_headers(url: str) -> Mapping[str, str]:
    """Return the headers of a file, without its content."""
    return _try_twice("HEAD", url)[0]


def read_json(url: str) -> Any:
    """Return the hub API's answer."""
    try:
        return parse_json(_try_twice("GET", url)[1])
    except ValueError as error:
        raise AnswerError("it is not valid JSON") from error


@contextmanager
def open_response(method: str, url: str, timeout: TransferTimeout, **headers: str) -> Iterator[Any]:
    """Yield the response after all redirects, its body unread: use `response.iter_raw()`."""
    response = timeout.run(lambda: _send(method, url, timeout, headers))
    try:
        yield response
    finally:
        response.close()


def refuse_compressed(response: Any) -> None:
    """Refuse a body that could take any amount of memory once decompressed."""
    encoding = response.headers.get("Content-Encoding", "identity")
    if encoding != "identity":
        raise AnswerError(f"it is compressed ({encoding[:20]!r})")


def _try_twice(method: str, url: str) -> tuple[Mapping[str, str], bytes]:
    """Headers and body; requested again if the connection fails, since the server may have closed an idle one."""
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
            refuse_compressed(response)
        for chunk in response.iter_raw():  # a HEAD's is empty, but reading to the end keeps the connection usable
            timeout.advance(len(chunk))
            body += chunk
            if len(body) > LARGEST_JSON:
                raise AnswerError(f"it has more than {LARGEST_JSON:,} bytes")
        return dict(response.headers), bytes(body)


def _send(method: str, url: str, timeout: TransferTimeout, headers: Mapping[str, str]) -> Any:
    """Follow redirects one by one; the session drops the token where the host changes.

    (huggingface_hub's `build_hf_headers` would send an extra request.)
    """
    session = get_session()
    session.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))  # a bad one would break later requests
    asked = {"User-Agent": f"detoklens/{__version__}", "Accept-Encoding": "identity", **headers}
    if token := None if constants.HF_HUB_DISABLE_IMPLICIT_TOKEN else get_token():
        asked["Authorization"] = f"Bearer {token}"
    request = session.build_request(method, url, headers=asked, timeout=constants.HF_HUB_DOWNLOAD_TIMEOUT)
    for _ in range(MAX_REDIRECTS):
        response: Any = session.send(request, stream=True, follow_redirects=False)
        if timeout.seconds_left() < 0:  # the caller has given up
            response.close()
            timeout.advance(0)
        if response.next_request is None or (method == "HEAD" and _describes_file(response)):
            return response
        response.close()
        request = response.next_request
    raise AnswerError(f"it redirects more than {MAX_REDIRECTS} times")


def _describes_file(response: Any) -> bool:
    """Whether a redirect to another host already states the file's etag and size."""
    return response.has_redirect_location and {"x-linked-etag", "x-linked-size"} <= response.headers.keys()


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
