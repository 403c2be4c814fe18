"""A hub dataset by its id, from a hub on this machine; and the one line where there is none."""

import hashlib
import io
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LISTING = re.compile(r"/api/datasets/(?P<repo>[^/]+/[^/]+)(/revision/(?P<revision>[^?]+))?")
FILE = re.compile(r"/datasets/(?P<repo>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<file>.+)")


def parquet(*texts: str) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table({"text": texts}), buffer)
    return buffer.getvalue()


DATASETS = {
    ("org/plain", "main"): {
        "README.md": b"about",
        "data/train-0.parquet": parquet("one", "two"),
        "data/train-1.parquet": parquet("three"),
        "other/x.jsonl": b'{"text": "four"}\n',
    },
    ("org/tarred", "main"): {"subsets/a.tar": b"tar"},
    ("org/tarred", "refs/convert/parquet"): {"default/train/0000.parquet": parquet("converted")},
    ("org/pictures", "main"): {"cat.png": b"png"},
}


class Hub(BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.replace("%2F", "/").split("?")[0]
        listing, file = LISTING.fullmatch(path), FILE.fullmatch(path.replace("refs/convert/parquet", "CONVERTED"))
        if listing:
            self.list(listing["repo"], listing["revision"] or "main")
        elif file:
            revision = "refs/convert/parquet" if file["revision"] == "CONVERTED" else "main"
            self.send(200, DATASETS[file["repo"], revision][file["file"]])
        else:
            self.send(404, b"", **{"X-Error-Code": "EntryNotFound"})

    def list(self, repo: str, revision: str) -> None:
        if (repo, "main") not in DATASETS:
            self.send(404, b"", **{"X-Error-Code": "RepoNotFound"})
        elif (repo, revision) not in DATASETS:
            self.send(404, b"", **{"X-Error-Code": "RevisionNotFound"})
        else:
            files = [{"rfilename": name} for name in DATASETS[repo, revision]]
            self.send(200, json.dumps({"id": repo, "sha": COMMIT, "siblings": files}).encode())

    def send(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {
            "ETag": f'"{hashlib.sha256(body).hexdigest()}"',
            "X-Repo-Commit": COMMIT,
            "Content-Length": str(len(body)),
            **headers,
        }.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        """Nothing is logged."""


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


SCRIPT = """
import sys
from detoklens.corpus.documents import read_documents
from detoklens.errors import DetokLensError
try:
    for document in read_documents(sys.argv[1:]):
        print(document.where, document.text)
except DetokLensError as error:
    print("refused:", error)
"""


def read(dataset: str, endpoint: str, cache: Path) -> list[str]:
    """In a process of its own: the hub's library reads its settings once, on import."""
    environment = {"HF_ENDPOINT": endpoint, "HF_HOME": str(cache), "HF_HUB_DISABLE_PROGRESS_BARS": "1", "PATH": ""}
    command = [sys.executable, "-c", SCRIPT, dataset]
    done = subprocess.run(command, env=environment, cwd=cache, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_a_dataset_is_all_its_countable_files(endpoint: str, tmp_path: Path) -> None:
    assert read("org/plain", endpoint, tmp_path) == [
        "org/plain/data/train-0.parquet, row 1 one",
        "org/plain/data/train-0.parquet, row 2 two",
        "org/plain/data/train-1.parquet, row 1 three",
        "org/plain/other/x.jsonl, line 1 four",
    ]


@pytest.mark.parametrize("pattern", ["data/*-1.parquet", "data/train-1.parquet"])
def test_a_pattern_chooses_among_them(pattern: str, endpoint: str, tmp_path: Path) -> None:
    assert read(f"org/plain/{pattern}", endpoint, tmp_path) == ["org/plain/data/train-1.parquet, row 1 three"]


def test_a_folder_chooses_among_them(endpoint: str, tmp_path: Path) -> None:
    assert read("org/plain/other", endpoint, tmp_path) == ["org/plain/other/x.jsonl, line 1 four"]


def test_where_there_is_none_the_hubs_parquet_copy_is_read(endpoint: str, tmp_path: Path) -> None:
    assert read("org/tarred", endpoint, tmp_path) == ["org/tarred/default/train/0000.parquet, row 1 converted"]


@pytest.mark.parametrize(
    ("dataset", "reason"),
    [
        ("org/pictures", "no files that can be counted"),
        ("org/plain/none*", "that match 'none*'"),
        ("org/nothing", "404"),
    ],
)
def test_what_the_hub_does_not_have_is_one_line(dataset: str, reason: str, endpoint: str, tmp_path: Path) -> None:
    (line,) = read(dataset, endpoint, tmp_path)
    assert line.startswith("refused: ")
    assert reason in line


def test_without_a_network_it_is_one_line(tmp_path: Path) -> None:
    (line,) = read("org/plain", "http://127.0.0.1:9", tmp_path)
    assert line.startswith("refused: org/plain: no such file here, and not to be had from the hub (")
