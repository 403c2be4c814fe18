"""The small model that the hub serves, and what is expected of a folder that was fetched from it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save

from detoklens.errors import DetokLensError
from detoklens.weights.hub_checkpoint import fetch_checkpoint
from tests.weights.hub.server import Answer, HubServer, Request

REPO = "someone/tiny"
OTHER_COMMIT = "f" * 40
NEEDED = ["embed", "h.0.norm", "h.0.query"]
RANDOM = np.random.default_rng(7)
# in the file by type and name: two needed tensors are neighbours, one stands alone, large others in between
TENSORS = {
    "a.unneeded": RANDOM.normal(size=(300, 257)).astype(np.float32),
    "embed": RANDOM.normal(size=(101, 33)).astype(np.float32),
    "f.unneeded": RANDOM.normal(size=(400, 119)).astype(np.float32),
    "h.0.norm": RANDOM.normal(size=(33,)).astype(np.float32),
    "h.0.query": RANDOM.normal(size=(33, 99)).astype(np.float32),
    "z.unneeded": RANDOM.normal(size=(500, 211)).astype(np.float32),
}
NEEDED_BYTES = sum(TENSORS[name].nbytes for name in NEEDED)
SMALL_FILES = {"config.json": b'{"model_type": "tiny"}', "tokenizer.json": b'{"version": "1.0"}'}


def needed(config: dict, names: object) -> list[str]:
    assert config["model_type"] == "tiny"
    assert set(NEEDED) <= set(names)
    return NEEDED


def whole_model() -> dict[str, bytes]:
    return {**SMALL_FILES, "model.safetensors": save(TENSORS)}


def sharded_model() -> dict[str, bytes]:
    shards = {"one.safetensors": ["a.unneeded", "embed"], "two.safetensors": ["h.0.norm", "h.0.query"]}
    shards["three.safetensors"] = ["f.unneeded", "z.unneeded"]
    index = {"weight_map": {name: shard for shard, names in shards.items() for name in names}}
    files = {shard: save({name: TENSORS[name] for name in names}) for shard, names in shards.items()}
    return {**SMALL_FILES, **files, "model.safetensors.index.json": json.dumps(index).encode()}


def use_endpoint(monkeypatch: pytest.MonkeyPatch, endpoint: str, home: Path) -> None:
    """huggingface_hub reads its environment when it is imported, so here its constants are set."""
    from huggingface_hub import constants
    from huggingface_hub.utils import _cache_assets

    template = "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", endpoint + template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(home / "hub"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(home / "token"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(_cache_assets, "HF_ASSETS_CACHE", str(home / "assets"))
    monkeypatch.setattr("detoklens.hub.session.FIRST_PAUSE_SECONDS", 0)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    for proxy in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(proxy, raising=False)


def go_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


def assert_holds_needed(folder: Path) -> None:
    """The reference reader of the format finds just the needed tensors, bit for bit."""
    held = load_file(folder / "model.safetensors")
    assert sorted(held) == sorted(NEEDED)
    for name, values in held.items():
        np.testing.assert_array_equal(values, TENSORS[name])
    for name, content in SMALL_FILES.items():
        assert (folder / name).read_bytes() == content


def assert_nothing_finished(home: Path) -> None:
    assert not list(home.rglob("assets/**/model.safetensors"))


def failure(repo_id: str = REPO, revision: str | None = None) -> str:
    with pytest.raises(DetokLensError) as caught:
        fetch_checkpoint(repo_id, needed, revision)
    line = str(caught.value)
    assert "\n" not in line
    return line


def cut(after: int, times: int, then: int | None = None):
    """Break off the first `times` answers that carry tensors; after that answer with status `then`, if given."""
    count = 0

    def fault(request: Request, answer: Answer) -> None:
        nonlocal count
        if answer.status != 206 or request.range.start == 0:
            return
        count += 1
        if count <= times:
            answer.cut_after = after
        elif then:
            answer.status, answer.headers, answer.body = then, {}, b""

    return fault


def tensor_requests(hub: HubServer) -> list[range]:
    return [r.range for r in hub.asked_for("model.safetensors") if r.range.start]
