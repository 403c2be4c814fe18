"""What is cached already is used, and offline nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.numpy import save

from detoklens.weights.hub_checkpoint import fetch_checkpoint
from tests.weights.hub.server import HubServer, Repository
from tests.weights.hub.tiny_model import (
    OTHER_COMMIT,
    REPO,
    SMALL_FILES,
    TENSORS,
    assert_holds_needed,
    cut,
    failure,
    go_offline,
    needed,
    sharded_model,
    whole_model,
)


def cache_whole_model(files: dict[str, bytes]) -> None:
    from huggingface_hub import constants, hf_hub_download

    for name in files:
        hf_hub_download(REPO, name, endpoint=constants.ENDPOINT)


@pytest.mark.parametrize("files", [whole_model(), sharded_model()], ids=["one file", "shards"])
def test_whole_weights_in_the_hubs_cache_are_used(files, hub: HubServer, tmp_path: Path) -> None:
    hub.repositories[REPO].files = files
    cache_whole_model(files)
    hub.requests.clear()
    folder = fetch_checkpoint(REPO, needed)
    assert tmp_path / "hub" in folder.parents
    assert all((folder / name).read_bytes() == content for name, content in files.items())
    assert not [request for request in hub.requests if request.method == "GET"]


def test_weights_cached_alone_get_their_tokenizer(hub: HubServer) -> None:
    cache_whole_model({"config.json": b"", "model.safetensors": b""})
    folder = fetch_checkpoint(REPO, needed)
    assert (folder / "tokenizer.json").read_bytes() == SMALL_FILES["tokenizer.json"]


def test_whole_weights_cached_under_an_older_commit_are_used(hub: HubServer) -> None:
    cache_whole_model(whole_model())
    hub.repositories[REPO].commit = OTHER_COMMIT  # say, a change of the model's card
    hub.requests.clear()
    folder = fetch_checkpoint(REPO, needed)
    assert folder.name == OTHER_COMMIT
    assert (folder / "model.safetensors").read_bytes() == save(TENSORS)
    assert not hub.asked_for("model.safetensors")


def test_some_shards_in_the_hubs_cache_are_not_the_whole(hub: HubServer, tmp_path: Path) -> None:
    files = hub.repositories[REPO].files = sharded_model()
    cache_whole_model({name: b"" for name in files if name != "three.safetensors"})
    folder = fetch_checkpoint(REPO, needed)
    assert tmp_path / "assets" in folder.parents
    assert_holds_needed(folder)


def test_a_pickle_in_the_hubs_cache_is_left_to_torch(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    files = hub.repositories[REPO].files = {**SMALL_FILES, "pytorch_model.bin": b"\x80\x04N."}
    cache_whole_model(files)
    folder = fetch_checkpoint(REPO, needed)
    assert (folder / "pytorch_model.bin").read_bytes() == b"\x80\x04N."
    go_offline(monkeypatch)
    assert fetch_checkpoint(REPO, needed) == folder


def test_offline_with_what_was_fetched_before(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = fetch_checkpoint(REPO, needed)
    go_offline(monkeypatch)
    hub.requests.clear()
    assert fetch_checkpoint(REPO, needed) == folder
    assert hub.requests == []


def test_offline_without_anything(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    go_offline(monkeypatch)
    assert "someone/tiny is not in the hub's cache and HF_HUB_OFFLINE is set" in failure()
    assert "at v9 is not in the hub's cache" in failure(revision="v9")
    assert hub.requests == []


def test_offline_after_an_interruption(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.fault = cut(after=5000, times=1, then=503)
    failure()
    go_offline(monkeypatch)
    hub.requests.clear()
    assert "the needed weights are not in the cache and HF_HUB_OFFLINE is set" in failure()
    assert hub.requests == []


SCRIPT = """
import sys
import detoklens.corpus.inputs, detoklens.weights.checkpoint
assert not {"huggingface_hub", "httpx", "httpx2", "requests", "rich"} & set(sys.modules), "imported too early"
from detoklens.weights.hub_checkpoint import fetch_checkpoint
print(fetch_checkpoint("someone/tiny", lambda config, names: ["embed", "h.0.norm", "h.0.query"]))
"""


def run_script(home: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "SYSTEMROOT") if name in os.environ}
    env = kept | {"HF_HOME": str(home), "HOME": str(home)} | environment
    return subprocess.run([sys.executable, "-c", SCRIPT], env=env, text=True, capture_output=True, check=True)


def test_the_environment_rules_and_a_pipe_stays_quiet(tmp_path: Path) -> None:
    with HubServer() as hub:
        hub.repositories[REPO] = Repository(whole_model())
        online = run_script(tmp_path, HF_ENDPOINT=hub.endpoint, HF_TOKEN="hf_secret")
        assert_holds_needed(Path(online.stdout.strip()))
        asked = [request for request in hub.requests if REPO in request.path]
        assert {request.authorization for request in asked} == {"Bearer hf_secret"}
        hub.requests.clear()
        offline = run_script(tmp_path, HF_ENDPOINT=hub.endpoint, HF_HUB_OFFLINE="1")
        assert hub.requests == []
    assert offline.stdout == online.stdout
    assert online.stderr == offline.stderr == ""
    assert tmp_path / "assets" in Path(online.stdout.strip()).parents
