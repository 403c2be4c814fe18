"""A hub that means harm, for models and for datasets: one line, soon, with little memory, and no file anywhere else."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from detoklens.corpus.inputs import download_dataset
from detoklens.errors import DetokLensError
from detoklens.weights.hub_checkpoint import fetch_checkpoint
from tests.weights.hub.server import COMMIT, Answer, Fault, HubServer, Repository, Request
from tests.weights.hub.tiny_model import REPO, needed

WORDS = {"data/a.jsonl": b'{"text": "one two"}\n' * 50, "README.md": b"words"}
FETCHES = {
    "model": lambda: fetch_checkpoint(REPO, needed),
    "dataset": lambda: download_dataset("org/words"),
}
both = pytest.mark.parametrize("fetch", FETCHES.values(), ids=FETCHES.keys())


@pytest.fixture(autouse=True)
def words(hub: HubServer) -> None:
    hub.repositories["datasets/org/words"] = Repository(dict(WORDS))


@pytest.fixture(autouse=True)
def everything_stays_in_the_caches(tmp_path: Path):
    yield
    strays = [path for path in tmp_path.rglob("*") if path.relative_to(tmp_path).parts[0] not in ("hub", "assets")]
    assert strays == []
    assert not list(tmp_path.rglob("escape*"))


def refusal(fetch: Callable[[], object]) -> str:
    with pytest.raises(DetokLensError) as caught:
        fetch()
    line = str(caught.value)
    assert "\n" not in line
    assert len(line) < 1000
    return line


def on_api(change: Callable[[Answer], None]) -> Fault:
    return lambda request, answer: change(answer) if request.path.startswith("/api/") else None


def on_files(change: Callable[[Request, Answer], None], method: str = "GET") -> Fault:
    def fault(request: Request, answer: Answer) -> None:
        if "/resolve/" in request.path and request.method == method:
            change(request, answer)

    return fault


def headers(**changed: str | None) -> Callable[[Request, Answer], None]:
    return lambda request, answer: answer.headers.update({k.replace("_", "-"): v for k, v in changed.items()})


def absolute(tmp_path: Path) -> str:
    return str(tmp_path / "escape")


HOSTILE_ETAGS = [
    "{}",
    '"{}"',
    '"../../../escape"',
    "../../../escape",
    'W/"../escape"',
    "..",
    '"a/b"',
    "a\\b",
    "é",
    '"a b"',
]


@both
@pytest.mark.parametrize("etag", [*HOSTILE_ETAGS, '".."', "x" * 300])
@pytest.mark.parametrize("header", ["ETag", "X-Linked-Etag"])
def test_an_etag_that_is_no_word(etag: str, header: str, fetch, hub: HubServer, tmp_path: Path) -> None:
    hostile = etag.format(absolute(tmp_path))
    hub.fault = on_files(headers(**{header: hostile}), "HEAD")
    assert "ETag is" in refusal(fetch)


@both
@pytest.mark.parametrize("commit", ["{}", "../../escape", "main", COMMIT[:39], COMMIT.upper(), "..", COMMIT + "/.."])
def test_a_commit_that_is_no_number(commit: str, fetch, hub: HubServer, tmp_path: Path) -> None:
    hostile = commit.format(absolute(tmp_path))
    hub.fault = on_files(headers(X_Repo_Commit=hostile), "HEAD")
    assert "commit is" in refusal(fetch)


@pytest.mark.parametrize("commit", ["{}", "../../escape", None, 7, ["a"], COMMIT + "\n"])
def test_a_list_of_a_commit_that_is_no_number(commit: object, hub: HubServer, tmp_path: Path) -> None:
    hostile = commit.format(absolute(tmp_path)) if isinstance(commit, str) else commit
    listing = {"sha": hostile, "siblings": [{"rfilename": "data/a.jsonl"}]}
    hub.fault = on_api(lambda answer: setattr(answer, "body", json.dumps(listing).encode()))
    assert "commit is" in refusal(FETCHES["dataset"])


@both
def test_the_second_answer_is_believed_no_more_than_the_first(fetch, hub: HubServer, tmp_path: Path) -> None:
    asked: list[str] = []

    def change(request: Request, answer: Answer) -> None:
        asked.append(request.path)
        if len(asked) > 1:
            answer.headers.update({"ETag": f'"{absolute(tmp_path)}"', "X-Repo-Commit": absolute(tmp_path)})

    hub.repositories["datasets/org/words"].files["data/b.jsonl"] = b'{"text": "three"}\n'
    hub.fault = on_files(change, "HEAD")
    assert "commit is" in refusal(fetch)


@both
def test_an_etag_behind_a_redirection(fetch, hub: HubServer, tmp_path: Path) -> None:
    def change(request: Request, answer: Answer) -> None:
        if "moved" not in request.path:
            answer.status, answer.headers = 307, {"Location": request.path.replace("/resolve/", "/moved/resolve/")}
        else:
            answer.status = 200
            answer.headers = {"ETag": f'"{absolute(tmp_path)}"', "X-Repo-Commit": COMMIT, "Content-Length": "20"}

    hub.fault = on_files(change, "HEAD")
    assert "ETag is" in refusal(fetch)


@both
@pytest.mark.parametrize(
    "location", ["/loop", "http://127.0.0.1:[", "file:///etc/passwd", "http://127.0.0.1:99999/", "//", "\xff"]
)
def test_a_redirection_to_nowhere(location: str, fetch, hub: HubServer) -> None:
    def change(request: Request, answer: Answer) -> None:
        answer.status, answer.headers, answer.body = 302, {"Location": location}, b""

    hub.fault = change
    refusal(fetch)


HOSTILE_NAMES = [
    "../../../escape.txt",
    "{}.txt",
    "a/../../escape.txt",
    "./a.txt",
    "a//b.txt",
    "a\\..\\b.txt",
    "C:a.txt",
]
HOSTILE_NAMES += ["a\0b.txt", "a\nb.txt", "\ud800.txt", "x" * 300 + ".txt", "é" * 200 + ".txt", "../a.txt"]


@pytest.mark.parametrize("name", HOSTILE_NAMES, ids=ascii)
def test_a_name_that_leads_elsewhere(name: str, hub: HubServer, tmp_path: Path) -> None:
    listing = {"sha": COMMIT, "siblings": [{"rfilename": name.format(absolute(tmp_path))}]}
    hub.fault = on_api(lambda answer: setattr(answer, "body", json.dumps(listing).encode()))
    assert "not a plain relative path" in refusal(FETCHES["dataset"])
    assert not [request for request in hub.requests if "/resolve/" in request.path]


def test_a_file_that_is_a_folder_too(hub: HubServer) -> None:
    hub.repositories["datasets/org/words"].files = {"a.txt": b"one", "a.txt/b.txt": b"two"}
    assert "not available from the hub" in refusal(FETCHES["dataset"])


def test_a_link_that_stands_where_a_file_is_kept_is_not_written_through(hub: HubServer, tmp_path: Path) -> None:
    repository = hub.repositories["datasets/org/words"]
    blobs = tmp_path / "hub/datasets--org--words/blobs"
    blobs.mkdir(parents=True)
    aim = tmp_path / "hub/aim"
    aim.write_bytes(b"mine")
    (blobs / repository.etag("data/a.jsonl")).symlink_to(aim)
    [(_, path)] = download_dataset("org/words")
    assert Path(path).read_bytes() == WORDS["data/a.jsonl"]
    assert aim.read_bytes() == b"mine"


DEEP = b"[" * 200_000
BAD_LISTS = {
    "HTML": b"<html><body>Sign in</body></html>",
    "a list": b"[]",
    "a number": b"7",
    "nothing": b"",
    "deep": DEEP,
    "deep inside": b'{"siblings": ' + DEEP,
    "no UTF-8": b'{"siblings": "\xff"}',
    "a long number": b"9" * 10_000,
    "files are no list": b'{"siblings": 7}',
    "files are numbers": b'{"siblings": [1, 2]}',
    "files without names": b'{"siblings": [{}]}',
    "names are numbers": b'{"siblings": [{"rfilename": 7}]}',
}


@both
@pytest.mark.parametrize("body", BAD_LISTS.values(), ids=BAD_LISTS.keys())
def test_a_list_of_files_that_is_none(body: bytes, fetch, hub: HubServer) -> None:
    hub.fault = on_api(lambda answer: setattr(answer, "body", body))
    assert "unusable answer from" in refusal(fetch)


@cache
def zeros() -> bytes:
    return gzip.compress(bytes(300_000_000), 1)


@both
@pytest.mark.parametrize("status", [200, 302, 404, 418, 500])
@pytest.mark.parametrize("kind", ["gzip", "gzip, gzip", "endless"])
def test_a_body_that_would_fill_the_memory(kind: str, status: int, fetch, hub: HubServer) -> None:
    """300 MB of zeros in 300 kB, or without an end, whatever the status says."""
    endless = kind == "endless"
    bomb = b" " * 1_000_000 if endless else zeros()

    def change(answer: Answer) -> None:
        answer.status, answer.body, answer.endless = status, bomb, endless
        answer.headers = {"Content-Length": None} if endless else {"Content-Encoding": kind}
        answer.headers["Location"] = "/api/elsewhere"

    hub.fault = on_api(change)
    tracemalloc.start()
    try:
        refusal(fetch)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100_000_000


@both
@pytest.mark.parametrize("status", [302, 403, 404])
def test_a_refused_file_is_not_read(status: int, fetch, hub: HubServer) -> None:
    def change(request: Request, answer: Answer) -> None:
        answer.status, answer.body, answer.endless = status, b" " * 1_000_000, True
        answer.headers = {"Content-Length": None, "Location": request.path}

    hub.fault = on_files(change)
    refusal(fetch)


def slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("detoklens.hub.session.GRACE_SECONDS", 0.4)
    monkeypatch.setattr("detoklens.hub.session.MIN_BYTES_PER_SECOND", 100)


DRIPS = {
    "headers of a file": on_files(lambda request, answer: setattr(answer, "seconds_a_header", 0.05), "HEAD"),
    "headers of content": on_files(lambda request, answer: setattr(answer, "seconds_a_header", 0.05)),
    "content": on_files(lambda request, answer: setattr(answer, "seconds_a_byte", 0.05)),
    "list": on_api(lambda answer: setattr(answer, "seconds_a_byte", 0.05)),
    "headers of the list": on_api(lambda answer: setattr(answer, "seconds_a_header", 0.05)),
}


@both
@pytest.mark.parametrize("drip", DRIPS.values(), ids=DRIPS.keys())
def test_a_byte_now_and_then_ends_by_the_pace(drip: Fault, fetch, hub: HubServer, monkeypatch) -> None:
    slowly(monkeypatch)
    hub.fault = drip
    assert ": too slow" in refusal(fetch)


def longer(request: Request, answer: Answer) -> None:
    answer.headers["Content-Length"] = str(len(answer.body) + 10)
    answer.cut_after = len(answer.body)


def shorter(request: Request, answer: Answer) -> None:
    answer.headers["Content-Length"] = str(len(answer.body) - 1)


def in_chunks(request: Request, answer: Answer) -> None:
    answer.headers |= {"Content-Length": None, "Transfer-Encoding": "chunked"}
    answer.body, answer.endless = b"5\r\n12345\r\n", True


def in_chunks_with_a_length(request: Request, answer: Answer) -> None:
    answer.headers["Transfer-Encoding"] = "chunked"  # the length is right, but says nothing about the body
    answer.body, answer.endless = b"5\r\n12345\r\n", True


def without_length(request: Request, answer: Answer) -> None:
    answer.headers["Content-Length"] = None
    answer.endless = True


def two_lengths(request: Request, answer: Answer) -> None:
    answer.headers["content-length"] = "1"


LENGTHS = {f.__name__: f for f in (longer, shorter, in_chunks, in_chunks_with_a_length, without_length, two_lengths)}


@both
@pytest.mark.parametrize("wrong", LENGTHS.values(), ids=LENGTHS.keys())
def test_a_wrong_length_of_a_small_file_is_one_line(wrong, fetch, hub: HubServer, capfd, caplog) -> None:
    hub.fault = on_files(wrong)
    assert "5 times in a row" in refusal(fetch)
    assert len(hub.requests) < 10
    assert capfd.readouterr() == ("", "")
    assert caplog.messages == []


@both
@pytest.mark.parametrize("length", ["5", "9" * 14, "9" * 30, "-1", "abc", "²"])
def test_a_wrong_length_in_what_the_hub_says_of_a_file(length: str, fetch, hub: HubServer) -> None:
    hub.fault = on_files(headers(X_Linked_Size=length), "HEAD")
    refusal(fetch)


@both
def test_content_that_is_not_what_its_etag_stands_for(fetch, hub: HubServer) -> None:
    def change(request: Request, answer: Answer) -> None:
        answer.body = b"?" * len(answer.body)

    hub.fault = on_files(change)
    assert "does not match its ETag" in refusal(fetch)
    hub.fault = None
    fetch()


def test_a_file_that_broke_off_is_continued_by_the_next_call(hub: HubServer) -> None:
    count = 0

    def change(request: Request, answer: Answer) -> None:
        nonlocal count
        count += 1
        answer.cut_after = 300
        if count > 1:
            answer.status, answer.headers, answer.body = 503, {}, b""

    hub.fault = on_files(change)
    assert "HTTP 503, 5 times in a row; run the same command again" in refusal(FETCHES["dataset"])
    hub.fault = None
    hub.requests.clear()
    [(_, path)] = download_dataset("org/words")
    assert Path(path).read_bytes() == WORDS["data/a.jsonl"]
    assert [request.range for request in hub.asked_for("a.jsonl")] == [range(300, 1000)]
