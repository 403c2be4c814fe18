"""What the hub refuses: one line that says what to do."""

from __future__ import annotations

import socket
from pathlib import Path
from types import SimpleNamespace

import pytest
from safetensors.numpy import load_file, save

import detoklens
from detoklens.errors import CheckpointError
from detoklens.weights.hub_checkpoint import fetch_checkpoint
from tests.layers import random_first_layer, write_gpt2
from tests.weights.hub.server import COMMIT, Answer, HubServer, Request
from tests.weights.hub.tiny_model import REPO, SMALL_FILES, assert_nothing_finished, failure, needed, use_endpoint


def refuse(status: int, code: str = ""):
    def fault(request: Request, answer: Answer) -> None:
        answer.status, answer.headers, answer.body = status, {"X-Error-Code": code}, b""

    return fault


def test_an_unknown_model(hub: HubServer, tmp_path: Path) -> None:
    assert failure("someone/else").startswith(f"no model 'someone/else' on {hub.endpoint}")
    assert not (tmp_path / "assets").exists()


def test_an_unknown_revision(hub: HubServer) -> None:
    assert "someone/tiny has no revision 'v9'" in failure(revision="v9")


def test_a_model_without_config(hub: HubServer) -> None:
    del hub.repositories[REPO].files["config.json"]
    assert "someone/tiny has no config.json" in failure()


@pytest.mark.parametrize("lacking", ["wte.weight", "h.0.attn.c_attn.weight"])
def test_a_model_without_a_tensor_that_all_need_is_not_downloaded(lacking: str, hub: HubServer, tmp_path: Path) -> None:
    folder = write_gpt2(tmp_path / "local", random_first_layer())
    tensors = load_file(folder / "model.safetensors")
    del tensors[f"transformer.{lacking}"]
    config = (folder / "config.json").read_bytes()
    hub.repositories[REPO].files = {"config.json": config, "model.safetensors": save(tensors)}
    with pytest.raises(CheckpointError, match=rf"{REPO}: the checkpoint has no tensor '.*'; choose another model"):
        detoklens.load(REPO)
    assert_nothing_finished(tmp_path)


@pytest.mark.parametrize(("status", "code"), [(401, "GatedRepo"), (403, "GatedRepo"), (401, ""), (403, "")])
def test_a_gated_model_says_how_to_log_in(status: int, code: str, hub: HubServer) -> None:
    hub.fault = refuse(status, code)
    line = failure()
    assert f"HTTP {status}" in line
    assert f"accept its licence at {hub.endpoint}/someone/tiny" in line
    assert "`hf auth login`" in line
    assert "HF_TOKEN" in line


def test_weights_that_are_gated_when_config_is_not(hub: HubServer, tmp_path: Path) -> None:
    def fault(request: Request, answer: Answer) -> None:
        if answer.status == 206 and request.path.endswith("/model.safetensors"):
            refuse(403)(request, answer)

    hub.fault = fault
    assert "`hf auth login`" in failure()
    assert len(hub.asked_for("model.safetensors")) == 1  # asking again would not help
    assert_nothing_finished(tmp_path)


def test_a_small_file_that_is_refused(hub: HubServer, tmp_path: Path) -> None:
    def fault(request: Request, answer: Answer) -> None:
        if request.path.endswith("/tokenizer.json"):
            refuse(403)(request, answer)

    hub.fault = fault
    assert "`hf auth login`" in failure()
    assert_nothing_finished(tmp_path)


LACKS = "lacks the commit, ETag or size of model.safetensors"
OTHER = f"has commit {'f' * 40} of model.safetensors, requested was {COMMIT}"


@pytest.mark.parametrize(
    ("header", "value", "line"),
    [
        ("ETag", "", LACKS),
        ("X-Repo-Commit", "f" * 40, OTHER),
        ("X-Repo-Commit", "", LACKS),
        ("X-Linked-Size", "9e9", LACKS),
    ],
)
def test_weights_that_the_hub_does_not_vouch_for(header: str, value: str, line: str, hub: HubServer) -> None:
    def fault(request: Request, answer: Answer) -> None:
        if request.path.endswith("/model.safetensors"):
            answer.headers[header] = value

    hub.fault = fault
    assert line in failure()


def test_a_hub_in_trouble(hub: HubServer) -> None:
    hub.fault = refuse(500)
    assert f"HTTP 500 from {hub.endpoint}; try again later" in failure()


def test_nobody_listens(hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{free.getsockname()[1]}"
    use_endpoint(monkeypatch, endpoint, tmp_path)
    line = failure()
    assert (
        f"there is no folder someone/tiny here; if it is on the hub, check the connection: {endpoint} can't be" in line
    )


def test_a_cached_model_does_not_mind_that_nobody_listens(
    hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = fetch_checkpoint(REPO, needed)
    use_endpoint(monkeypatch, "http://127.0.0.1:1", tmp_path)
    assert fetch_checkpoint(REPO, needed) == folder


@pytest.mark.parametrize("name", ["../up", "a/b/c", "white space", "-dash", "a" * 200])
def test_what_is_no_name_of_a_model(name: str, hub: HubServer) -> None:
    assert "neither a local folder nor the name of a model" in failure(name)
    assert hub.requests == []


@pytest.mark.parametrize("revision", ["../up", "/etc", "a//b", "white\nspace", "a\0b"])
def test_what_is_no_name_of_a_revision(revision: str, hub: HubServer) -> None:
    assert "is not a revision" in failure(revision=revision)
    assert hub.requests == []


def test_a_pickle_alone_is_not_downloaded(hub: HubServer) -> None:
    hub.repositories[REPO].files = {**SMALL_FILES, "pytorch_model.bin": b"\x80\x04N."}
    line = failure()
    assert "only pytorch_model.bin, a pickle that can't be read in parts" in line
    assert f"get('someone/tiny', revision='{COMMIT}')" in line
    assert f"from_pretrained('someone/tiny', revision='{COMMIT}').save_pretrained('FOLDER')" in line
    assert not hub.asked_for("pytorch_model.bin")


def test_no_weights_at_all(hub: HubServer) -> None:
    hub.repositories[REPO].files = dict(SMALL_FILES)
    assert "neither model.safetensors nor" in failure()


@pytest.mark.parametrize(
    "step", ["weights.hub_checkpoint.write_whole", "hub.repository.cached_assets_path", "hub.repository.download"]
)
def test_a_disk_that_can_not_be_written(step: str, hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "cache/file")

    monkeypatch.setattr(f"detoklens.{step}", full)
    assert "No space left on device: 'cache/file'); free some space, or set HF_HOME" in failure()


def test_a_file_larger_than_the_free_space_is_not_downloaded(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("detoklens.hub.session.shutil.disk_usage", lambda _: SimpleNamespace(free=10))
    assert "22 bytes are needed and 10 free" in failure()
    assert not hub.asked_for("config.json")
