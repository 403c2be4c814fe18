"""One question, one answer: bounded in time and in memory, whatever the other side sends.

Bodies are read as they are on the wire and never unpacked: no compression is asked for, so what is compressed is
refused. Bodies of redirections and of refusals are not read at all. Redirections are followed one by one by
huggingface_hub's session, which drops the token where the host changes.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.cookiejar import DefaultCookiePolicy
from typing import Any

from detoklens.hub.pace import Pace, in_time
from detoklens.version import __version__

LARGEST_JSON = 32_000_000  # bytes of an API answer; a list of 100,000 files has about 10 MB
MOST_REDIRECTS = 10


class AnswerError(Exception):
    """An answer that can't be used; another one may be better."""


class RefusedError(Exception):
    """The hub says no (401, 404, …): that will not change by asking again."""

    def __init__(self, response: Any) -> None:
        self.status: int = response.status_code
        self.code: str = response.headers.get("X-Error-Code", "")
        self.url = str(response.request.url)
        super().__init__(f"HTTP {self.status}")


def ask_headers(url: str) -> Mapping[str, str]:
    """What does the hub say of a file, without its content?"""
    pace = Pace(url)
    return in_time(lambda: _headers(url, pace), pace)


def ask_json(url: str) -> Any:
    """What does the hub's API answer?"""
    pace = Pace(url)
    body = in_time(lambda: _body(url, pace), pace)
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise AnswerError("it is no JSON that can be read") from error


@contextmanager
def opened(url: str, pace: Pace, **headers: str) -> Iterator[Any]:
    """The answer to a GET, its body unread: `response.iter_raw()`."""
    response = in_time(lambda: _last_answer("GET", url, pace, headers), pace)
    try:
        yield response
    finally:
        response.close()


def refuse_compressed(response: Any) -> None:
    """No compression was asked for; unpacking what comes nevertheless could take any memory."""
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise AnswerError(f"it is compressed ({response.headers['Content-Encoding'][:20]!r})")


def _headers(url: str, pace: Pace) -> Mapping[str, str]:
    response = _last_answer("HEAD", url, pace, {})
    try:
        for _ in response.iter_raw():
            pass  # there is none, but to have seen its end keeps the connection usable
        _refuse_bad_status(response)
        return dict(response.headers)
    finally:
        response.close()


def _body(url: str, pace: Pace) -> bytes:
    response = _last_answer("GET", url, pace, {})
    try:
        _refuse_bad_status(response)
        refuse_compressed(response)
        body = bytearray()
        for piece in response.iter_raw():
            pace.advance(len(piece))
            body += piece
            if len(body) > LARGEST_JSON:
                raise AnswerError(f"it has more than {LARGEST_JSON:,} bytes")
        return bytes(body)
    finally:
        response.close()


def _refuse_bad_status(response: Any) -> None:
    if response.status_code >= 400:
        raise RefusedError(response)
    if not (response.is_success or _describes_file(response)):
        raise AnswerError(f"it is HTTP {response.status_code}")


def _last_answer(method: str, url: str, pace: Pace, headers: Mapping[str, str]) -> Any:
    """Status and headers at the end of all redirections."""
    from huggingface_hub import constants

    client = _session()
    asked = {**_request_headers(), **headers}
    request = client.build_request(method, url, headers=asked, timeout=constants.HF_HUB_DOWNLOAD_TIMEOUT)
    for _ in range(MOST_REDIRECTS):
        response: Any = client.send(request, stream=True, follow_redirects=False)
        if pace.seconds_left() < 0:  # nobody waits any more
            response.close()
            raise pace.too_slow()
        if response.next_request is None or (method == "HEAD" and _describes_file(response)):
            return response
        response.close()
        request = response.next_request
    raise AnswerError(f"it redirects more than {MOST_REDIRECTS} times")


def _session() -> Any:
    """huggingface_hub's session, without cookies: the hub needs none, and a stranger's would go into later requests."""
    from huggingface_hub import get_session

    session = get_session()
    session.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))
    return session


def _describes_file(response: Any) -> bool:
    """Does the hub, on its way to another host, say all of the file itself? That host need not be asked then."""
    return response.has_redirect_location and {"x-linked-etag", "x-linked-size"} <= response.headers.keys()


def _request_headers() -> dict[str, str]:
    """Who asks, the user's token if there is one, and no compression.

    Not by huggingface_hub's own function for this: it asks the endpoint a question first, and reads any answer.
    """
    from huggingface_hub import constants, get_token

    headers = {"User-Agent": f"detoklens/{__version__}", "Accept-Encoding": "identity"}
    token = None if constants.HF_HUB_DISABLE_IMPLICIT_TOKEN else get_token()
    return {**headers, "Authorization": f"Bearer {token}"} if token else headers
