"""A hub on 127.0.0.1: the routes for models and datasets, a log of what was asked, and faults on demand."""

from __future__ import annotations

import hashlib
import json
import re
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
RESOLVE = re.compile(r"/(?P<repo>.+)/resolve/(?P<revision>[^/]+)/(?P<file>.+)")
REFS = re.compile(r"/api/(models/|(?=datasets/))(?P<repo>.+)/refs")
LISTING = re.compile(r"/api/(models/|(?=datasets/))(?P<repo>.+)/revision/(?P<revision>[^/]+)")


@dataclass
class Repository:
    """The files of the branch `main`, and other branches."""

    files: dict[str, bytes]
    commit: str = COMMIT
    etags: dict[str, str] = field(default_factory=dict)
    branches: dict[str, Repository] = field(default_factory=dict)

    def at(self, revision: str) -> Repository | None:
        if revision in ("main", self.commit):
            return self
        return next((b for name, b in self.branches.items() if revision in (name, b.commit)), None)

    def etag(self, name: str) -> str:
        return self.etags.get(name) or hashlib.sha256(self.files[name]).hexdigest()


LONGEST_WAIT = 5.0  # seconds for an answer that is on its way


@dataclass
class Request:
    """One request as it was seen, and how many bytes of body it was answered with."""

    method: str
    path: str
    range: range | None
    authorization: str | None
    accept_encoding: str | None
    sent: int = 0
    ended: bool = False  # the reader may have all of it before the server has noted that


@dataclass
class Answer:
    """What is about to be sent for a file; a fault changes it."""

    status: int
    headers: dict[str, str | None]  # None: not even the usual one is sent
    body: bytes
    cut_after: int | None = None  # close the connection after so many bytes of the body
    seconds_a_byte: float = 0  # of the body; nothing of it is sent at once then
    seconds_a_header: float = 0
    endless: bool = False  # the body over and over again


Fault = Callable[[Request, Answer], None]


class HubServer:
    """`with HubServer() as hub:` serves `hub.repositories` at `hub.endpoint`; datasets are `datasets/<name>` there."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.aliases: dict[str, str] = {}
        self.requests: list[Request] = []
        self.fault: Fault | None = None
        self.cdn: HubServer | None = None
        self.connections: list[socket.socket] = []
        hub = self

        class Handler(_Handler):
            server_of_files = hub

        self._http = _QuietServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    def __enter__(self) -> HubServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._thread.join()
        for connection in self.connections:  # the client keeps them open, for more requests
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._http.server_close()

    def asked_for(self, file: str, method: str = "GET") -> list[Request]:
        found = [r for r in self.requests if r.method == method and r.path.endswith(f"/{file}")]
        deadline = time.monotonic() + LONGEST_WAIT
        while not all(request.ended for request in found) and time.monotonic() < deadline:
            time.sleep(0.01)
        return found


class _QuietServer(ThreadingHTTPServer):
    daemon_threads = False  # closing waits for them, so no socket outlives the test

    def handle_error(self, *_: object) -> None:
        """A reader that hangs up between two requests is part of the tests."""
        if not isinstance(sys.exception(), OSError):
            raise AssertionError("the hub of the tests is broken") from sys.exception()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # headers and body are two writes
    timeout = 5
    server_of_files: HubServer

    def setup(self) -> None:
        super().setup()
        self.server_of_files.connections.append(self.connection)

    def log_message(self, *_: object) -> None:
        """Quiet."""

    def do_HEAD(self) -> None:
        self._serve()

    def do_GET(self) -> None:
        self._serve()

    def _serve(self) -> None:
        quoted = urlsplit(self.path).path
        path = unquote(quoted)
        told = (self.headers.get("Authorization"), self.headers.get("Accept-Encoding"))
        request = Request(self.command, path, self._range(), *told)
        self.server_of_files.requests.append(request)
        answer = self._answer(quoted, request)
        if self.server_of_files.fault:
            self.server_of_files.fault(request, answer)
        self._send(request, answer)

    def _range(self) -> range | None:
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        return range(int(match[1]), int(match[2]) + 1) if match else None

    def _answer(self, path: str, request: Request) -> Answer:
        hub = self.server_of_files
        match = REFS.fullmatch(path)
        if match and match["repo"] in hub.repositories:
            return _refs(hub.repositories[match["repo"]])
        match = LISTING.fullmatch(path) or RESOLVE.fullmatch(path)
        if not match:
            return _refusal(404, "NotFound")
        if match["repo"] in hub.aliases:
            return Answer(307, {"Location": path.replace(match["repo"], hub.aliases[match["repo"]], 1)}, b"")
        if match["repo"] not in hub.repositories:
            return _refusal(404, "RepoNotFound")
        repository = hub.repositories[match["repo"]].at(unquote(match["revision"]))
        if not repository:
            return _refusal(404, "RevisionNotFound")
        if path.startswith("/api/"):
            return _listing(match["repo"], repository)
        return self._file(repository, unquote(match["file"]), request)

    def _file(self, repository: Repository, name: str, request: Request) -> Answer:
        if name not in repository.files:
            return _refusal(404, "EntryNotFound", repository.commit)
        body = repository.files[name]
        headers = {"X-Repo-Commit": repository.commit, "ETag": f'"{repository.etag(name)}"'}
        cdn = self.server_of_files.cdn
        if cdn and name.endswith(".safetensors"):
            linked = {"X-Linked-Etag": headers["ETag"], "X-Linked-Size": str(len(body))}
            return Answer(302, headers | linked | {"Location": cdn.endpoint + request.path}, b"")
        if request.range is None:
            return Answer(200, headers | {"Content-Length": str(len(body))}, body)
        part = body[request.range.start : request.range.stop]
        headers["Content-Range"] = f"bytes {request.range.start}-{request.range.stop - 1}/{len(body)}"
        return Answer(206, headers | {"Content-Length": str(len(part))}, part)

    def _send(self, request: Request, answer: Answer) -> None:
        headers = {"Content-Length": str(len(answer.body))} | answer.headers
        body = b"" if self.command == "HEAD" else answer.body[: answer.cut_after]
        self.close_connection = self.close_connection or answer.cut_after is not None or answer.endless
        try:
            self._send_headers(answer, {name: value for name, value in headers.items() if value is not None})
            if answer.seconds_a_byte:
                self._drip(body, answer.seconds_a_byte)
            else:
                self.wfile.write(body)
            while answer.endless and body:
                self.wfile.write(body)
            request.sent = len(body)
        except OSError:  # the reader has hung up
            self.close_connection = True
        finally:
            request.ended = True

    def _send_headers(self, answer: Answer, headers: dict[str, str]) -> None:
        if not answer.seconds_a_header:
            self.send_response(answer.status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            return
        self.wfile.write(b"HTTP/1.1 200 OK\r\nDrip: ")
        self._drip(b"x" * 10_000, answer.seconds_a_header)

    def _drip(self, body: bytes, seconds: float) -> None:
        for byte in body:
            self.wfile.write(bytes([byte]))
            time.sleep(seconds)


def _refusal(status: int, code: str, commit: str | None = None) -> Answer:
    return Answer(status, {"X-Error-Code": code} | ({"X-Repo-Commit": commit} if commit else {}), b"")


def _refs(repository: Repository) -> Answer:
    branches = {"main": repository, **repository.branches}
    listed = [{"name": name, "ref": f"refs/heads/{name}", "targetCommit": b.commit} for name, b in branches.items()]
    return Answer(200, {"Content-Type": "application/json"}, json.dumps({"branches": listed, "tags": []}).encode())


def _listing(repo_id: str, repository: Repository) -> Answer:
    siblings = [{"rfilename": name} for name in repository.files]
    listing = {"id": repo_id.removeprefix("datasets/"), "sha": repository.commit, "siblings": siblings}
    return Answer(200, {"Content-Type": "application/json"}, json.dumps(listing).encode())
