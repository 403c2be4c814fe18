"""The server gives out the bundle's files, to this machine, and nothing else to nobody else."""

from __future__ import annotations

import http.client
import os
import socket

import pytest

from detoklens.errors import OutputError, RangeError
from detoklens.explorer.server import Server, open_inside, serving


@pytest.fixture
def folder(tmp_path):
    inside = tmp_path / "bundle"
    (inside / "assets").mkdir(parents=True)
    (inside / "index.html").write_text("<!doctype html><title>page</title>")
    (inside / "assets/page.js").write_text("1")
    (inside / "numbers.bin").write_bytes(bytes(range(256)) * 1000)
    (inside / ".hidden").write_text("secret")
    (tmp_path / "secret.txt").write_text("secret")
    (inside / "way_out").symlink_to(tmp_path)
    (inside / "secret.txt").symlink_to(tmp_path / "secret.txt")
    os.mkfifo(inside / "pipe.bin")
    return inside


@pytest.fixture
def server(folder):
    with Server(folder) as made, serving(made):
        yield made


def ask(server, path="/", method="GET", host=None, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    if host != "":
        connection.putheader("Host", host or f"127.0.0.1:{server.server_port}")
    if body:
        connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer, content


@pytest.mark.parametrize(
    ("path", "kind", "length"),
    [
        ("/", "text/html; charset=utf-8", 34),
        ("/index.html?x=1", "text/html; charset=utf-8", 34),
        ("/assets/page.js", "text/javascript; charset=utf-8", 1),
        ("/numbers.bin", "application/octet-stream", 256_000),
    ],
)
def test_files_come_with_their_types_and_the_policy(server, path, kind, length):
    answer, content = ask(server, path)
    assert (answer.status, answer.headers["Content-Type"], len(content)) == (200, kind, length)
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Cache-Control"] == "no-store"


def test_a_head_request_has_no_body(server):
    answer, content = ask(server, "/numbers.bin", "HEAD")
    assert (answer.status, answer.headers["Content-Length"], content) == (200, "256000", b"")


@pytest.mark.parametrize(
    "path",
    [
        "/../secret.txt",
        "/%2e%2e/secret.txt",
        "/..%2fsecret.txt",
        "/assets/../../secret.txt",
        "/assets/..%5c..%5csecret.txt",
        "//secret.txt",
        "/./secret.txt",
        "/.hidden",
        "/secret.txt",
        "/way_out/secret.txt",
        "/way_out",
        "/assets",
        "/assets/",
        "/pipe.bin",
        "/nothing",
        "/%00",
        "/" + "a" * 5000,
        "http://elsewhere/../secret.txt",
    ],
)
def test_nothing_else_is_given_out(server, path):
    answer, content = ask(server, path)
    assert answer.status == 404
    assert b"secret" not in content
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1", "localhost:1", "[::1]", ""])
def test_other_hosts_are_refused(server, host):
    answer, content = ask(server, host=host)
    assert answer.status in (400, 403)
    assert b"<title>" not in content


def test_this_machine_has_two_names(server):
    assert ask(server, host=f"localhost:{server.server_port}")[0].status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "NONSENSE"])
def test_other_methods_are_refused(server, method):
    answer, content = ask(server, "/index.html", method, body=b"x=1")
    assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")
    assert b"<title>" not in content


def test_noise_is_no_request_and_breaks_nothing(server, capfd):
    for noise in (b"\x16\x03\x01nonsense\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b""):
        with socket.create_connection(("127.0.0.1", server.server_port), timeout=20) as line:
            line.sendall(noise)
            line.shutdown(socket.SHUT_WR)
            assert b"200" not in line.recv(100)
    assert ask(server)[0].status == 200
    assert capfd.readouterr() == ("", "")


def test_it_listens_on_this_machine_alone(server):
    assert server.server_address[0] == "127.0.0.1"
    assert server.url == f"http://127.0.0.1:{server.server_port}/"


def test_a_notebook_may_show_it(folder):
    with Server(folder, framed=True) as server, serving(server):
        assert "frame-ancestors" not in ask(server)[0].headers["Content-Security-Policy"]


def test_two_at_once(folder):
    with Server(folder) as one, Server(folder) as other, serving(one), serving(other):
        assert one.server_port != other.server_port
        assert ask(one)[0].status == ask(other)[0].status == 200
        assert ask(one, host=f"127.0.0.1:{other.server_port}")[0].status == 403


def test_a_port_in_use_is_one_line(folder):
    with (
        Server(folder) as one,
        pytest.raises(OutputError, match=rf"can't listen on port {one.server_port}: anoth"),
    ):
        Server(folder, one.server_port)


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_that_does_not_exist_is_refused(folder, port):
    with pytest.raises(RangeError, match=f"port {port} is invalid"):
        Server(folder, port)


def test_a_file_that_becomes_a_link_is_not_followed(folder):
    (folder / "numbers.bin").unlink()
    (folder / "numbers.bin").symlink_to("/etc/hostname")
    assert open_inside(folder, "/numbers.bin") is None
