"""Requests on huggingface_hub's session, bounded in time and memory no matter what the server sends.

Bodies are read as they arrive and never decompressed: a compressed answer, which was not asked for, is refused. Bodies
of redirects and of errors are not read at all. A read timeout ends silence; `TransferTimeout` also ends a server that
sends one byte at a time.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager
from http.cookiejar import DefaultCookiePolicy
from typing import Any, TypeVar

from huggingface_hub import constants, get_session, get_token

from detoklens.errors import parse_json
from detoklens.hub.errors import AnswerError, HTTPError, RefusedError, TransferError
from detoklens.version import __version__

Result = TypeVar("Result")

LARGEST_JSON = 32_000_000  # bytes of an API answer; a list of 100,000 files has about 10 MB
MAX_REDIRECTS = 10
GRACE_SECONDS = 60.0
MIN_BYTES_PER_SECOND = 10_000


class TransferTimeout:
    """The deadline of one transfer, however many requests it takes.

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
    """Headers and body; asked for again if the connection fails, since the server may have closed a kept one."""
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
