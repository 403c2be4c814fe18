"""A local HTTP server for the files of one bundle.

It listens on 127.0.0.1 and answers GET and HEAD requests whose Host header names this machine, which prevents DNS
rebinding. The content security policy allows the page to load only files of its own folder.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, BinaryIO, ClassVar
from urllib.parse import unquote, urlsplit

from detoklens.errors import OutputError, RangeError

HOST = "127.0.0.1"
DEFAULT_PORT = 80
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json; charset=utf-8",
    ".svg": "image/svg+xml",
    ".wasm": "application/wasm",
    ".woff2": "font/woff2",
}
OTHER_TYPE = "application/octet-stream"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "worker-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'"
)


class Server(ThreadingHTTPServer):
    """Serves a bundle on a local port; `framed` allows a notebook to embed it.

    Behind a notebook's proxy (`proxied`) requests name the proxy's host. There no browser runs on this machine that a
    rebound name could trick, and the proxy checks who asks.
    """

    daemon_threads = True

    def __init__(self, folder: Path, port: int = 0, framed: bool = False, proxied: bool = False) -> None:
        self.folder, self.framed, self.proxied = folder.resolve(), framed, proxied
        if not 0 <= port < 1 << 16:
            raise RangeError(f"port {port} is invalid; pass 1 to 65535, or 0 for any free port")
        try:
            super().__init__((HOST, port), Handler)
        except OSError as error:
            why = (error.strerror or "the system refuses it").lower()
            if error.errno == errno.EADDRINUSE:
                why = "another program uses it"
            raise OutputError(f"can't listen on port {port}: {why}; pass another port, or none") from error

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server_port}/"

    @property
    def policy(self) -> str:
        return POLICY if self.framed else f"{POLICY}; frame-ancestors 'none'"

    def handle_error(self, _request: Any, _client: Any) -> None:
        """Ignore browsers that disconnect in the middle of a file."""


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: Server
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "detoklens", ""
    timeout = 60
    methods: ClassVar[tuple[str, ...]] = ("GET", "HEAD")

    def do_GET(self) -> None:
        with self._requested_file() as file:
            if file is not None:
                shutil.copyfileobj(file, self.wfile)

    def do_HEAD(self) -> None:
        with self._requested_file():
            pass

    def send_error(self, code: int, message: str | None = None, _explain: str | None = None) -> None:
        """Refuse with one line of plain text; called for every method but GET and HEAD."""
        if code == HTTPStatus.NOT_IMPLEMENTED:
            code, message = HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD are allowed"
        body = f"{message or HTTPStatus(code).phrase}\n".encode()
        self.close_connection = True
        self._begin(code, "text/plain; charset=utf-8", len(body))
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_told: Any) -> None:
        """Log nothing."""

    @contextmanager
    def _requested_file(self) -> Iterator[BinaryIO | None]:
        """The requested file, with headers sent; None if the request was refused."""
        port = self.server.server_port
        names = [f"{HOST}:{port}", f"localhost:{port}"]
        names += [HOST, "localhost"] if port == DEFAULT_PORT else []  # browsers omit the default port
        if not self.server.proxied and self.headers.get("Host") not in names:
            self.send_error(HTTPStatus.FORBIDDEN, f"this is {self.server.url}; other host names are refused")
            yield None
            return
        file = open_inside(self.server.folder, unquote(urlsplit(self.path).path))
        if file is None:
            self.send_error(HTTPStatus.NOT_FOUND, "no such file in this explorer")
            yield None
            return
        with file:
            self._begin(HTTPStatus.OK, TYPES.get(Path(file.name).suffix, OTHER_TYPE), os.fstat(file.fileno()).st_size)
            yield file

    def _begin(self, code: int, kind: str, length: int) -> None:
        self.send_response(code)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(length)),
            ("Content-Security-Policy", self.server.policy),
            ("X-Content-Type-Options", "nosniff"),
            ("Referrer-Policy", "no-referrer"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("Cache-Control", "no-store"),
            *([("Connection", "close")] if self.close_connection else []),
            *([("Allow", ", ".join(self.methods))] if code == HTTPStatus.METHOD_NOT_ALLOWED else []),
        ):
            self.send_header(name, value)
        self.end_headers()


def open_inside(folder: Path, asked: str) -> BinaryIO | None:
    """Open a file of the folder by URL path; None for `..`, hidden names, links, and anything but a file."""
    names = asked.removeprefix("/").split("/")
    if names[-1] == "":
        names[-1] = "index.html"
    if any(not name or name.startswith(".") or "\\" in name or "\0" in name for name in names):
        return None
    path = folder.joinpath(*names)
    if path.resolve() != path:  # a link in the path
        return None
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        return None
    return open(path, "rb", opener=lambda *_: file)


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    """Run the server in the background inside a `with` block."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
