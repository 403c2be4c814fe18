"""A hub that answers with anything: damaged headers, statuses, JSON, lengths and content.

What is fetched is right or refused in one line; nothing is written outside the caches, and little memory is taken.
"""

from __future__ import annotations

import random
import shutil
import socket
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from detoklens.corpus.inputs import download_dataset
from detoklens.errors import DetokLensError
from detoklens.weights.hub_checkpoint import fetch_checkpoint, fetch_tokenizer
from tests.fuzz.budget import cases
from tests.weights.hub.server import Answer, HubServer, Repository, Request
from tests.weights.hub.tiny_model import (
    REPO,
    SMALL_FILES,
    assert_holds_needed,
    needed,
    sharded_model,
    use_endpoint,
    whole_model,
)

WORDS = {"data/a.jsonl": b'{"text": "one two"}\n' * 50, "data/b.txt": b"three", "README.md": b"words"}
MOST_MEMORY = 120_000_000  # bytes; an endless list of files is read up to 32 MB of it

HEADERS = ["ETag", "X-Linked-Etag", "X-Repo-Commit", "X-Linked-Size", "Content-Length", "Content-Range", "Location"]
HEADERS += [
    "Content-Encoding",
    "Transfer-Encoding",
    "X-Error-Code",
    "Content-Type",
    "Connection",
    "Set-Cookie",
    "X-Xet-Hash",
]
VALUES = [
    "",
    "0",
    "1",
    "-1",
    "9" * 25,
    "../../escape",
    "/escape",
    "{outside}",
    '"{outside}"',
    'W/"../../../escape"',
    "..",
    ".",
]
VALUES += [
    "a" * 70_000,
    "é",
    "\x01",
    "gzip",
    "chunked",
    "gzip, chunked",
    "EntryNotFound",
    "RevisionNotFound",
    "RepoNotFound",
]
VALUES += [
    "GatedRepo",
    "http://127.0.0.1:1/x",
    "//x",
    "http://[",
    "file:///etc/passwd",
    "/someone/tiny",
    "?",
    "bytes 0-5/6",
]
VALUES += ["f" * 40, "f" * 64, "close", "upgrade", "a=b; Path=/", "%00", "a b", "\t"]
STATUSES = [
    100,
    101,
    200,
    201,
    204,
    206,
    300,
    301,
    302,
    304,
    307,
    308,
    400,
    401,
    403,
    404,
    408,
    416,
    429,
    451,
    500,
    503,
    599,
]
TEXTS = [
    "[",
    '{"a":',
    "]",
    "}",
    '"',
    "null",
    "1e999",
    "NaN",
    "-",
    '{"rfilename": "../../escape.txt"}',
    '"\\ud800"',
    "\x00",
    "é",
]


@pytest.fixture(autouse=True)
def nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    look_up = socket.getaddrinfo

    def local(host: object, *rest: object, **more: object) -> object:
        if host not in ("127.0.0.1", b"127.0.0.1"):
            raise socket.gaierror(-2, "no such host in the tests")
        return look_up(host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", local)


@pytest.fixture
def hub() -> Iterator[HubServer]:
    with HubServer() as server:
        server.repositories[REPO] = Repository(whole_model())
        server.repositories["someone/shards"] = Repository(sharded_model())
        server.repositories["datasets/org/words"] = Repository(dict(WORDS))
        yield server


def damaged_bytes(body: bytes, chance: random.Random) -> bytes:
    """Cut, lengthened, with other bytes, or with text that JSON does not expect."""
    start = chance.randrange(len(body) + 1)
    stop = min(len(body), start + chance.choice([0, 1, 5, 50]))
    inserted = chance.choice([*TEXTS, "", "[" * 100_000]).encode() * chance.choice([1, 1, 3])
    kind = chance.randrange(4)
    if kind == 0:
        return body[:start]
    if kind == 1:
        return body[:start] + inserted + body[stop:]
    if kind == 2:
        return body[:start] + chance.randbytes(stop - start) + body[stop:]
    return body + inserted


def damage(answer: Answer, outside: Path, chance: random.Random) -> None:
    kind = chance.randrange(9)
    if kind <= 2:
        name = chance.choice(HEADERS)
        answer.headers[name] = chance.choice([None, *VALUES])
        if answer.headers[name]:
            answer.headers[name] = answer.headers[name].replace("{outside}", str(outside / "escape"))
    elif kind == 3:
        answer.status = chance.choice(STATUSES)
    elif kind == 4:
        answer.body = damaged_bytes(answer.body, chance)
        if chance.random() < 0.5 and "Content-Length" in answer.headers:
            answer.headers["Content-Length"] = str(len(answer.body))
    elif kind == 5:
        answer.cut_after = chance.randrange(len(answer.body) + 1)
    elif kind == 6:
        answer.headers["Content-Length"] = str(max(0, len(answer.body) + chance.choice([-50, -1, 1, 50])))
    elif kind == 7:
        answer.headers["Content-Length"], answer.endless = None, True
        answer.body = answer.body or b" "
        answer.body *= 1 + 100_000 // len(answer.body)
    else:
        answer.headers, answer.body = {}, chance.choice([b"<html>", b"[]", b"null", b"{}", b"[" * 100_000, b""])


class Liar:
    """Damages answers, all of one kind or now and then; `hidden` once it has hidden what the content should be."""

    def __init__(self, outside: Path, chance: random.Random) -> None:
        self.outside, self.chance, self.hidden = outside, chance, False
        self.share = chance.choice([0.2, 1.0, 1.0])
        self.where = chance.choice(["", "/api/", "/resolve/", "config.json", ".safetensors", "/api/"])
        self.method = chance.choice(["GET", "HEAD", ""])

    def __call__(self, request: Request, answer: Answer) -> None:
        if self.where in request.path and self.method in ("", request.method) and self.chance.random() < self.share:
            before = etags(answer)
            for _ in range(self.chance.choice([1, 1, 1, 2, 4])):
                damage(answer, self.outside, self.chance)
            self.hidden = self.hidden or etags(answer) != before


def etags(answer: Answer) -> list[str | None]:
    return [answer.headers.get(name) for name in ("ETag", "X-Linked-Etag")]


def fetched(kind: str) -> dict[str, bytes]:
    """The small files and texts that were fetched. (Tensors carry no sum: their damage can't be seen.)"""
    if kind == "words":
        return {
            name.removeprefix("org/words/"): Path(path).read_bytes() for name, path in download_dataset("org/words")
        }
    if kind == "tokenizer":
        folder = fetch_tokenizer(REPO)
    else:
        folder = fetch_checkpoint("someone/shards" if kind == "shards" else REPO, needed)
    return {name: (folder / name).read_bytes() for name in SMALL_FILES if (folder / name).is_file()}


def one_case(hub: HubServer, home: Path, chance: random.Random) -> bool:
    """Is it refused? Else what has come is right."""
    hub.fault = liar = Liar(home.parent, chance)
    try:
        found = fetched(chance.choice(["whole", "shards", "tokenizer", "words"]))
    except DetokLensError as error:
        line = str(error)
    else:
        assert liar.hidden or all(content == (WORDS | SMALL_FILES)[name] for name, content in found.items())
        return False
    assert "\n" not in line
    return True


def test_whatever_a_hub_answers_is_right_or_one_line(
    hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    fetch_all(hub, tmp_path / "sound", monkeypatch)
    monkeypatch.setattr("detoklens.hub.session.GRACE_SECONDS", 0.5)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DOWNLOAD_TIMEOUT", 0.1)
    home, tried, refused = tmp_path / "home", 0, 0
    tracemalloc.start()
    for chance in cases(few=80):
        use_endpoint(monkeypatch, hub.endpoint, home)
        tried, refused = tried + 1, refused + one_case(hub, home, chance)
        assert {path.name for path in tmp_path.iterdir()} <= {"home", "sound"}
        assert {path.parts[len(home.parts)] for path in home.rglob("*")} <= {"hub", "assets"}
        assert not list(home.rglob("*escape*"))
        shutil.rmtree(home, ignore_errors=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 0 < refused < tried
    assert peak < MOST_MEMORY
    assert capfd.readouterr() == ("", "")
    sys.stdout.write(f"{refused:,} of {tried:,} refused, peak {peak / 1e6:.0f} MB\n")


def fetch_all(hub: HubServer, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without damage all of it is there: the test fails for no other reason."""
    use_endpoint(monkeypatch, hub.endpoint, home)
    assert_holds_needed(fetch_checkpoint(REPO, needed))
    assert_holds_needed(fetch_checkpoint("someone/shards", needed))
    assert {Path(path).read_bytes() for _, path in download_dataset("org/words")} == {WORDS["data/a.jsonl"], b"three"}
