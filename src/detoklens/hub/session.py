"""Requests on huggingface_hub's session, bounded in time and memory no matter what the server sends.

Bodies are read as they arrive and never decompressed: a compressed answer, which was not asked for, is refused. Bodies
of redirects and of errors are not read at all.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.cookiejar import DefaultCookiePolicy
from typing import Any, TypeVar

from huggingface_hub import constants, get_session, get_token

from detoklens.hub.errors import AnswerError, HTTPError, RefusedError
from detoklens.hub.transfer_timeout import TransferTimeout
from detoklens.strict_json import parse_json
from detoklens.version import __version__

Result = TypeVar("Result")

LARGEST_JSON = 32_000_000  # bytes of an API answer; a list of 100,000 files has about 10 MB
MAX_REDIRECTS = 10


def read_headers(url: str) -> Mapping[str, str]:
    """Return the headers of a file, without its content."""

    def read() -> Mapping[str, str]:
        with open_response("HEAD", url, TransferTimeout(url)) as response:
            _check_status(response)
            for _ in response.iter_raw():
                pass  # empty, but reading to the end keeps the connection usable
            return dict(response.headers)

    return _try_twice(read)


def read_json(url: str) -> Any:
    """Return the hub API's answer."""

    def read() -> bytes:
        timeout, body = TransferTimeout(url), bytearray()
        with open_response("GET", url, timeout) as response:
            _check_status(response)
            refuse_compressed(response)
            for chunk in response.iter_raw():
                timeout.advance(len(chunk))
                body += chunk
                if len(body) > LARGEST_JSON:
                    raise AnswerError(f"it has more than {LARGEST_JSON:,} bytes")
        return bytes(body)

    try:
        return parse_json(_try_twice(read))
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


def _try_twice(read: Callable[[], Result]) -> Result:
    """Try again if the connection fails: the server may have closed a kept connection."""
    try:
        return read()
    except HTTPError:
        return read()


def _check_status(response: Any) -> None:
    if response.status_code >= 400:
        raise RefusedError(response)
    if not (response.is_success or _describes_file(response)):
        raise AnswerError(f"it is HTTP {response.status_code}")


def _send(method: str, url: str, timeout: TransferTimeout, headers: Mapping[str, str]) -> Any:
    """Follow redirects one by one; the session drops the token where the host changes."""
    session = get_session()
    session.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))  # a bad one would break later requests
    asked = {**_request_headers(), **headers}
    request = session.build_request(method, url, headers=asked, timeout=constants.HF_HUB_DOWNLOAD_TIMEOUT)
    for _ in range(MAX_REDIRECTS):
        response: Any = session.send(request, stream=True, follow_redirects=False)
        if timeout.seconds_left() < 0:  # the caller has given up
            response.close()
            timeout.check()
        if response.next_request is None or (method == "HEAD" and _describes_file(response)):
            return response
        response.close()
        request = response.next_request
    raise AnswerError(f"it redirects more than {MAX_REDIRECTS} times")


def _describes_file(response: Any) -> bool:
    """Whether a redirect to another host already states the file's etag and size."""
    return response.has_redirect_location and {"x-linked-etag", "x-linked-size"} <= response.headers.keys()


def _request_headers() -> dict[str, str]:
    """User agent and token, if any. (huggingface_hub's `build_hf_headers` would send an extra request.)"""
    headers = {"User-Agent": f"detoklens/{__version__}", "Accept-Encoding": "identity"}
    token = None if constants.HF_HUB_DISABLE_IMPLICIT_TOKEN else get_token()
    return {**headers, "Authorization": f"Bearer {token}"} if token else headers
