"""A hub on 127.0.0.1: the routes that a checkpoint is read by, a log of what was asked, and faults on demand."""

from __future__ import annotations

import hashlib
import json
import re
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
RESOLVE = re.compile(r"/(?P<repo>.+)/resolve/(?P<revision>[^/]+)/(?P<file>[^/]+)")
LISTING = re.compile(r"/api/models/(?P<repo>.+)/revision/(?P<revision>[^/]+)")


@dataclass
class Repository:
    files: dict[str, bytes]
    commit: str = COMMIT
    etags: dict[str, str] = field(default_factory=dict)

    def etag(self, name: str) -> str:
        return self.etags.get(name) or hashlib.sha256(self.files[name]).hexdigest()


@dataclass
class Request:
    """One request as it was seen, and how many bytes of body it was answered with."""

    method: str
    path: str
    range: range | None
    authorization: str | None
    accept_encoding: str | None
    sent: int = 0


@dataclass
class Answer:
    """What is about to be sent for a file; a fault changes it."""

    status: int
    headers: dict[str, str]
    body: bytes
    cut_after: int | None = None  # close the connection after so many bytes of the body


Fault = Callable[[Request, Answer], None]


class HubServer:
    """`with HubServer() as hub:` serves `hub.repositories` at `hub.endpoint`."""

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
        return [r for r in self.requests if r.method == method and r.path.endswith(f"/{file}")]


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
        path = unquote(urlsplit(self.path).path)
        told = (self.headers.get("Authorization"), self.headers.get("Accept-Encoding"))
        request = Request(self.command, path, self._range(), *told)
        self.server_of_files.requests.append(request)
        answer = self._answer(path, request)
        if self.server_of_files.fault:
            self.server_of_files.fault(request, answer)
        self._send(request, answer)

    def _range(self) -> range | None:
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        return range(int(match[1]), int(match[2]) + 1) if match else None

    def _answer(self, path: str, request: Request) -> Answer:
        hub = self.server_of_files
        match = LISTING.fullmatch(path) or RESOLVE.fullmatch(path)
        if not match:
            return _refusal(404, "NotFound")
        if match["repo"] in hub.aliases:
            return Answer(307, {"Location": path.replace(match["repo"], hub.aliases[match["repo"]], 1)}, b"")
        repository = hub.repositories.get(match["repo"])
        if not repository:
            return _refusal(404, "RepoNotFound")
        if match["revision"] not in ("main", repository.commit):
            return _refusal(404, "RevisionNotFound")
        if path.startswith("/api/"):
            return _listing(match["repo"], repository)
        return self._file(repository, match["file"], request)

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
        self.send_response(answer.status)
        for name, value in ({"Content-Length": str(len(answer.body))} | answer.headers).items():
            self.send_header(name, value)
        body = b"" if self.command == "HEAD" else answer.body[: answer.cut_after]
        self.close_connection = self.close_connection or answer.cut_after is not None
        try:
            self.end_headers()
            self.wfile.write(body)
            request.sent = len(body)
        except OSError:  # the reader has hung up
            self.close_connection = True


def _refusal(status: int, code: str, commit: str | None = None) -> Answer:
    return Answer(status, {"X-Error-Code": code} | ({"X-Repo-Commit": commit} if commit else {}), b"")


def _listing(repo_id: str, repository: Repository) -> Answer:
    siblings = [{"rfilename": name, "size": len(body)} for name, body in repository.files.items()]
    listing = {"id": repo_id, "sha": repository.commit, "siblings": siblings}
    return Answer(200, {"Content-Type": "application/json"}, json.dumps(listing).encode())
