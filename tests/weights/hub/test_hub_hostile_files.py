"""Files that a stranger made up: refused in one line, before anything is fetched or written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from detoklens.errors import CheckpointError
from detoklens.weights.hub_checkpoint import fetch_checkpoint
from tests.weights.hub.server import COMMIT, HubServer
from tests.weights.hub.tiny_model import NEEDED, REPO, TENSORS, assert_nothing_finished, failure, needed, sharded_model

HOSTILE_SHARDS = ["../../escape.safetensors", "/etc/passwd", "a/b.safetensors", "..", "", "x.bin", 7, None, ["a"]]


@pytest.mark.parametrize("shard", HOSTILE_SHARDS, ids=repr)
def test_an_index_that_points_elsewhere(shard: object, hub: HubServer, tmp_path: Path) -> None:
    index = {"weight_map": dict.fromkeys(NEEDED, "one.safetensors") | {"other": shard}}
    files = sharded_model() | {"model.safetensors.index.json": json.dumps(index).encode()}
    hub.repositories[REPO].files = files
    assert "model.safetensors.index.json" in failure()
    assert all("safetensors" not in request.path.removesuffix(".index.json") or "index" in request.path
               for request in hub.requests)  # fmt: skip
    assert_nothing_finished(tmp_path)


@pytest.mark.parametrize("index", [b"", b"[]", b"{}", b'{"weight_map": {}}', b"[" * 100_000], ids=range(5))
def test_an_index_that_is_none(index: bytes, hub: HubServer) -> None:
    hub.repositories[REPO].files = sharded_model() | {"model.safetensors.index.json": index}
    assert "model.safetensors.index.json" in failure()


def test_an_index_that_names_the_wrong_shard(hub: HubServer) -> None:
    index = {"weight_map": dict.fromkeys(TENSORS, "one.safetensors")}
    hub.repositories[REPO].files = sharded_model() | {"model.safetensors.index.json": json.dumps(index).encode()}
    assert "puts tensor 'h.0.norm' into one.safetensors, which does not hold it" in failure()


def with_header(header: object, data: bytes = b"\0" * 4000) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(start: int, end: int) -> dict:
    return {"dtype": "F32", "shape": [(end - start) // 4], "data_offsets": [start, end]}


HOSTILE_FILES = {
    "nothing but a length": (2**63).to_bytes(8, "little"),
    "too short for a length": b"\0\0\0",
    "header beyond the file": (10_000).to_bytes(8, "little") + b"{}",
    "no JSON": with_header(b"{]"),
    "deep JSON": with_header(b"[" * 50_000),
    "a list": with_header([]),
    "tensor beyond the file": with_header({name: entry(0, 8000) for name in NEEDED}),
    "negative offset": with_header({name: entry(-8, 0) for name in NEEDED}),
    "same bytes twice": with_header({name: entry(4 * i, 400 + 4 * i) for i, name in enumerate(NEEDED)}),
}


@pytest.mark.parametrize("content", HOSTILE_FILES.values(), ids=HOSTILE_FILES.keys())
def test_a_hostile_weights_file(content: bytes, hub: HubServer, tmp_path: Path) -> None:
    hub.repositories[REPO].files["model.safetensors"] = content
    with pytest.raises(CheckpointError) as caught:
        fetch_checkpoint(REPO, needed)
    assert "\n" not in str(caught.value)
    assert f"{hub.endpoint}/{REPO}/resolve/{COMMIT}/model.safetensors" in str(caught.value)
    assert_nothing_finished(tmp_path)
    assert not list(tmp_path.rglob("*.partial"))


@pytest.mark.parametrize("config", [b"", b"[]", b"{", b"\xff\xfe", b"[" * 100_000], ids=range(5))
def test_a_config_that_is_none(config: bytes, hub: HubServer) -> None:
    hub.repositories[REPO].files["config.json"] = config
    assert "config.json is not" in failure()


def test_a_tokenizer_of_absurd_size_is_not_downloaded(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("detoklens.weights.hub_checkpoint.LARGEST_SMALL_FILE", 1000)
    hub.repositories[REPO].files["tokenizer.json"] = b" " * 1001
    assert "tokenizer.json has 1,001 bytes" in failure()
    assert not hub.asked_for("tokenizer.json")


def test_a_config_or_header_of_absurd_size_is_not_downloaded(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("detoklens.weights.hub_checkpoint.LARGEST_HEADER", 100_000)
    hub.repositories[REPO].files["model.safetensors"] = with_header(b"{" + b" " * 100_000)
    assert "the header has 100,009 bytes" in failure()
    assert [request.range.stop for request in hub.asked_for("model.safetensors")] == [65_536]
    monkeypatch.setattr("detoklens.weights.hub_checkpoint.LARGEST_JSON", 1000)
    hub.repositories[REPO].files["config.json"] += b" " * 1000
    hub.repositories[REPO].commit = "f" * 40
    assert "config.json has 1,022 bytes" in failure()


def test_a_tensor_that_is_needed_and_missing(hub: HubServer) -> None:
    with pytest.raises(CheckpointError, match="no tensor 'gone'"):
        fetch_checkpoint(REPO, lambda config, names: ["gone"])
