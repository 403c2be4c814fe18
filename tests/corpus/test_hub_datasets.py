"""A hub dataset by its id, from a hub on this machine; and the one line where there is none."""

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.weights.hub.server import HubServer, Repository


def parquet(*texts: str) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table({"text": texts}), buffer)
    return buffer.getvalue()


PLAIN = {
    "README.md": b"about",
    "data/train-0.parquet": parquet("one", "two"),
    "data/train-1.parquet": parquet("three"),
    "other/x.jsonl": b'{"text": "four"}\n',
}
CONVERTED = Repository({"default/train/0000.parquet": parquet("converted")}, commit="c" * 40)


@pytest.fixture(scope="module")
def hub() -> Iterator[HubServer]:
    with HubServer() as server:
        server.repositories["datasets/org/plain"] = Repository(PLAIN)
        server.repositories["datasets/org/pictures"] = Repository({"cat.png": b"png"})
        tarred = Repository({"subsets/a.tar": b"tar"}, branches={"refs/convert/parquet": CONVERTED})
        server.repositories["datasets/org/tarred"] = tarred
        yield server


@pytest.fixture
def endpoint(hub: HubServer) -> str:
    return hub.endpoint


SCRIPT = """
import sys
from detoklens.corpus.inputs import find_inputs
from detoklens.corpus.documents import read_documents
from detoklens.errors import DetokLensError
try:
    files = find_inputs(sys.argv[1:])
    print(*[file.name for file in files], *read_documents([file.path for file in files]), sep="\\n")
except DetokLensError as error:
    print("refused:", error)
"""


def read(dataset: str, endpoint: str, cache: Path) -> list[str]:
    """In a process of its own: the hub's library reads its settings once, on import."""
    kept = {name: os.environ[name] for name in ("PYTHONPATH", "SYSTEMROOT") if name in os.environ}
    environment = kept | {"HF_ENDPOINT": endpoint, "HF_HOME": str(cache), "PATH": ""}
    command = [sys.executable, "-c", SCRIPT, dataset]
    done = subprocess.run(command, env=environment, cwd=cache, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_a_dataset_is_all_its_countable_files(endpoint: str, tmp_path: Path) -> None:
    assert read("org/plain", endpoint, tmp_path) == [
        "org/plain/data/train-0.parquet",
        "org/plain/data/train-1.parquet",
        "org/plain/other/x.jsonl",
        *["one", "two", "three", "four"],
    ]


def test_the_second_time_only_the_list_is_asked_for(hub: HubServer, tmp_path: Path) -> None:
    first = read("org/plain", hub.endpoint, tmp_path)
    hub.requests.clear()
    assert read("org/plain", hub.endpoint, tmp_path) == first
    assert [(r.method, r.path) for r in hub.requests] == [("GET", "/api/datasets/org/plain/revision/main")]


@pytest.mark.parametrize("pattern", ["data/*-1.parquet", "data/train-1.parquet"])
def test_a_pattern_chooses_among_them(pattern: str, endpoint: str, tmp_path: Path) -> None:
    assert read(f"org/plain/{pattern}", endpoint, tmp_path) == ["org/plain/data/train-1.parquet", "three"]


def test_a_folder_chooses_among_them(endpoint: str, tmp_path: Path) -> None:
    assert read("org/plain/other", endpoint, tmp_path) == ["org/plain/other/x.jsonl", "four"]


def test_where_there_is_none_the_hubs_parquet_copy_is_read(endpoint: str, tmp_path: Path) -> None:
    assert read("org/tarred", endpoint, tmp_path) == ["org/tarred/default/train/0000.parquet", "converted"]


@pytest.mark.parametrize(
    ("dataset", "reason"),
    [
        ("org/pictures", "no files that can be counted"),
        ("org/plain/none*", "matching 'none*'"),
        ("org/nothing", "404"),
    ],
)
def test_what_the_hub_does_not_have_is_one_line(dataset: str, reason: str, endpoint: str, tmp_path: Path) -> None:
    (line,) = read(dataset, endpoint, tmp_path)
    assert line.startswith("refused: ")
    assert reason in line


def test_without_a_network_it_is_one_line(tmp_path: Path) -> None:
    (line,) = read("org/plain", "http://127.0.0.1:9", tmp_path)
    assert line.startswith("refused: org/plain: not a local file, and not available from the hub (")
