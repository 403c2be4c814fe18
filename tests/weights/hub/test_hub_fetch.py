"""A checkpoint read from a hub by range requests: only what is needed leaves the server."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save

import detoklens
from detoklens.weights.hub_checkpoint import fetch_checkpoint, fetch_tokenizer
from tests.weights.families.tiny import IDS, saved, tiny
from tests.weights.hub.server import COMMIT, HubServer
from tests.weights.hub.tiny_model import NEEDED, NEEDED_BYTES, REPO, TENSORS, assert_holds_needed, needed, sharded_model


def test_only_headers_and_needed_tensors_leave_the_server(hub: HubServer, tmp_path: Path) -> None:
    folder = fetch_checkpoint(REPO, needed)
    assert_holds_needed(folder)
    assert tmp_path / "assets" in folder.parents
    weights = hub.asked_for("model.safetensors")
    assert sum(request.sent for request in weights) == 65_536 + NEEDED_BYTES
    assert len(weights) == 3  # the header, the lone tensor, the two neighbours as one
    assert {request.accept_encoding for request in weights} == {"identity"}
    assert not list(folder.glob("*.partial"))


def test_a_second_call_asks_for_the_commit_and_nothing_else(hub: HubServer) -> None:
    folder = fetch_checkpoint(REPO, needed)
    hub.requests.clear()
    assert fetch_checkpoint(REPO, needed) == folder
    assert [(r.method, r.path) for r in hub.requests] == [("HEAD", f"/{REPO}/resolve/main/config.json")]


def test_a_pinned_commit_in_the_cache_needs_no_request(hub: HubServer) -> None:
    folder = fetch_checkpoint(REPO, needed, COMMIT)
    hub.requests.clear()
    assert fetch_checkpoint(REPO, needed, COMMIT) == folder
    assert hub.requests == []


def test_a_header_longer_than_the_first_guess_takes_two_requests(hub: HubServer) -> None:
    many = TENSORS | {f"layer.{i:05}.unneeded": np.zeros(1, np.float32) for i in range(1500)}
    hub.repositories[REPO].files["model.safetensors"] = content = save(many)
    header_end = 8 + int.from_bytes(content[:8], "little")
    assert header_end > 65_536
    assert_holds_needed(fetch_checkpoint(REPO, needed))
    ranges = [request.range for request in hub.asked_for("model.safetensors")]
    assert ranges[:2] == [range(65_536), range(65_536, header_end)]


def test_a_file_shorter_than_the_first_guess(hub: HubServer) -> None:
    small = {name: TENSORS[name] for name in NEEDED}
    hub.repositories[REPO].files["model.safetensors"] = save(small)
    assert_holds_needed(fetch_checkpoint(REPO, needed))


def test_of_a_sharded_checkpoint_only_shards_that_hold_needed_tensors_are_opened(hub: HubServer) -> None:
    hub.repositories[REPO].files = sharded_model()
    assert_holds_needed(fetch_checkpoint(REPO, needed))
    assert hub.asked_for("one.safetensors")
    assert hub.asked_for("two.safetensors")
    assert not hub.asked_for("three.safetensors")


def test_half_precision_types_keep_their_bytes(hub: HubServer) -> None:
    halves = {name: values.astype(np.float16) for name, values in TENSORS.items()}
    hub.repositories[REPO].files["model.safetensors"] = save(halves)
    held = load_file(fetch_checkpoint(REPO, needed) / "model.safetensors")
    for name in NEEDED:
        np.testing.assert_array_equal(held[name], halves[name])


def test_a_renamed_model_is_found_by_its_old_name(hub: HubServer) -> None:
    hub.aliases["tiny"] = REPO
    assert_holds_needed(fetch_checkpoint("tiny", needed))


def test_older_tokenizer_files_come_along(hub: HubServer) -> None:
    files = hub.repositories[REPO].files
    files["vocab.json"], files["merges.txt"] = b"{}", b"#version"
    folder = fetch_checkpoint(REPO, needed)
    assert (folder / "vocab.json").read_bytes() == b"{}"
    assert (folder / "merges.txt").read_bytes() == b"#version"


def test_a_tokenizer_is_fetched_without_its_weights(hub: HubServer) -> None:
    folder = fetch_tokenizer(REPO)
    assert (folder / "tokenizer.json").read_bytes() == b'{"version": "1.0"}'
    assert not hub.asked_for("model.safetensors")
    assert not hub.asked_for("model.safetensors", method="HEAD")


def test_what_is_needed_later_joins_what_is_there(hub: HubServer) -> None:
    fetch_checkpoint(REPO, lambda config, names: ["embed"])
    folder = fetch_checkpoint(REPO, lambda config, names: ["h.0.norm", "h.0.query"])
    assert_holds_needed(folder)


def test_the_token_reaches_the_hub_but_not_the_host_it_redirects_to(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    with HubServer() as cdn:
        cdn.repositories = hub.repositories
        hub.cdn = cdn
        assert_holds_needed(fetch_checkpoint(REPO, needed))
        assert {request.authorization for request in hub.requests} == {"Bearer hf_secret"}
        assert len(cdn.requests) == 3
        assert all(request.range and request.authorization is None for request in cdn.requests)


def test_two_calls_at_once_fetch_once(hub: HubServer) -> None:
    folders: list[Path] = []
    threads = [threading.Thread(target=lambda: folders.append(fetch_checkpoint(REPO, needed))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(folders)) == 1
    assert len(folders) == 3
    assert_holds_needed(folders[0])
    assert sum(request.sent for request in hub.asked_for("model.safetensors")) == 65_536 + NEEDED_BYTES


def test_the_rest_of_the_block_is_fetched_when_it_is_asked_for(hub: HubServer, tmp_path: Path) -> None:
    model = tiny("gpt2", n_embd=12, n_head=3, vocab_size=23, n_layer=2, n_positions=20)
    folder = saved(model, tmp_path / "model")
    hub.repositories[REPO].files = {name: (folder / name).read_bytes() for name in ("config.json", "model.safetensors")}
    layer = detoklens.load(REPO)
    before = {name for name in load_file(layer.checkpoint.folder / "model.safetensors") if ".mlp." in name}
    assert not before
    np.testing.assert_array_equal(layer.block_output(IDS), detoklens.load(model).block_output(IDS))
    held = load_file(layer.checkpoint.folder / "model.safetensors")
    assert {"h.0.mlp.c_fc.weight", "wte.weight"} <= held.keys()
    assert not any(name.startswith("h.1.") for name in held)


def test_no_cookie_is_kept(hub: HubServer) -> None:
    """One that can't be sent back made every later request of the process fail."""
    hub.fault = lambda request, answer: answer.headers.update({"Set-Cookie": "é=1"})
    fetch_checkpoint(REPO, needed)
    hub.fault = None
    hub.repositories[REPO].commit = "f" * 40
    assert_holds_needed(fetch_checkpoint(REPO, needed))
