"""A checkpoint read from a hub by range requests: only what is needed, never a wrong byte, one line when it fails."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hub_server import COMMIT, Answer, HubServer, Repository, Request
from safetensors.numpy import load_file, save

from detoklens.errors import CheckpointError, DetokLensError
from detoklens.weights.hub import fetch_checkpoint

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


@pytest.fixture(autouse=True)
def only_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    look_up = socket.getaddrinfo

    def local(host: object, *rest: object, **more: object) -> object:
        assert host in ("127.0.0.1", b"127.0.0.1"), f"traffic to {host!r}"
        return look_up(host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", local)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from huggingface_hub import close_session

    close_session()
    with HubServer() as server:
        server.repositories[REPO] = Repository(whole_model())
        use_endpoint(monkeypatch, server.endpoint, tmp_path)
        yield server
        close_session()


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
    monkeypatch.setattr("detoklens.weights.hub.ranges.FIRST_PAUSE_SECONDS", 0)
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


# ---- the whole way ----


def test_only_headers_and_needed_tensors_leave_the_server(hub: HubServer, tmp_path: Path) -> None:
    folder = fetch_checkpoint(REPO, needed)
    assert_holds_needed(folder)
    assert tmp_path / "assets" in folder.parents
    weights = hub.asked_for("model.safetensors")
    assert sum(request.sent for request in weights) == 65_536 + NEEDED_BYTES
    assert len(weights) == 3  # the header, the lone tensor, the two neighbours as one
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


# ---- interruptions ----


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


def test_a_broken_connection_is_taken_up_where_it_broke(hub: HubServer) -> None:
    hub.fault = cut(after=5000, times=2)
    assert_holds_needed(fetch_checkpoint(REPO, needed))
    first, second, third, *_ = tensor_requests(hub)
    assert second == range(first.start + 5000, first.stop)
    assert third == range(first.start + 10_000, first.stop)


def test_a_later_call_continues_from_the_bytes_on_disk(hub: HubServer, tmp_path: Path) -> None:
    hub.fault = cut(after=5000, times=1, then=503)
    assert "HTTP 503, 5 times in a row; run the same again" in failure()
    assert_nothing_finished(tmp_path)
    [partial] = tmp_path.rglob("*.partial")
    first = tensor_requests(hub)[0]

    hub.fault = None
    hub.requests.clear()
    folder = fetch_checkpoint(REPO, needed)
    assert_holds_needed(folder)
    assert tensor_requests(hub)[0] == range(first.start + 5000, first.stop)
    sent = sum(request.sent for request in hub.asked_for("model.safetensors"))
    assert sent == 65_536 + NEEDED_BYTES - 5000
    assert not partial.exists()


def test_an_interrupt_from_the_keyboard_keeps_what_has_arrived(
    hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from detoklens.weights.hub import assembly

    real = assembly.stream_ranges

    def interrupted(*asked: object):
        yield next(real(*asked))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(assembly, "stream_ranges", interrupted)
        fetch_checkpoint(REPO, needed)
    assert_nothing_finished(tmp_path)
    before = tensor_requests(hub)[0]
    hub.requests.clear()
    assert_holds_needed(fetch_checkpoint(REPO, needed))
    assert tensor_requests(hub)[0].start > before.start


def test_bytes_of_other_content_are_never_continued(hub: HubServer, tmp_path: Path) -> None:
    hub.fault = cut(after=5000, times=1, then=503)
    failure()
    hub.fault = None
    changed = {name: values + 1 for name, values in TENSORS.items()}  # same layout, other values
    hub.repositories[REPO].files["model.safetensors"] = save(changed)
    held = load_file(fetch_checkpoint(REPO, needed) / "model.safetensors")
    for name in NEEDED:
        np.testing.assert_array_equal(held[name], changed[name])
    assert not list(tmp_path.rglob("*.partial"))


def test_a_damaged_partial_file_is_begun_anew(hub: HubServer, tmp_path: Path) -> None:
    hub.fault = cut(after=5000, times=1, then=503)
    failure()
    [partial] = tmp_path.rglob("*.partial")
    partial.write_bytes(b"\0" * partial.stat().st_size)
    hub.fault = None
    assert_holds_needed(fetch_checkpoint(REPO, needed))


def test_a_damaged_finished_file_is_fetched_anew(hub: HubServer) -> None:
    folder = fetch_checkpoint(REPO, needed)
    with (folder / "model.safetensors").open("r+b") as file:
        file.truncate(2000)
    assert_holds_needed(fetch_checkpoint(REPO, needed))


# ---- servers that misbehave ----


def on_ranges(change):
    """A fault in each answer to a range request for weights."""

    def fault(request: Request, answer: Answer) -> None:
        if request.method == "GET" and request.range and answer.status == 206:
            change(request, answer)

    return fault


def ignore_range(hub: HubServer):
    def change(request: Request, answer: Answer) -> None:
        answer.status, answer.body = 200, hub.repositories[REPO].files[request.path.rpartition("/")[2]]
        answer.headers["Content-Length"] = str(len(answer.body))
        del answer.headers["Content-Range"]

    return on_ranges(change)


def test_a_server_that_ignores_range_is_read_from_the_start(hub: HubServer) -> None:
    hub.fault = ignore_range(hub)
    assert_holds_needed(fetch_checkpoint(REPO, needed))
    assert len(hub.asked_for("model.safetensors")) == 2  # the header, then all tensors in one stream


def test_a_server_that_ignores_range_and_breaks_off(hub: HubServer) -> None:
    ignore, count = ignore_range(hub), 0

    def fault(request: Request, answer: Answer) -> None:
        nonlocal count
        ignore(request, answer)
        if answer.status == 200 and request.range and request.range.start:
            count += 1
            answer.cut_after = None if count > 2 else TENSORS["a.unneeded"].nbytes + 3000 * count

    hub.fault = fault
    assert_holds_needed(fetch_checkpoint(REPO, needed))
    assert count == 3


def content_range(first: int, last: int, total: int):
    def change(request: Request, answer: Answer) -> None:
        start, stop = request.range.start + first, request.range.stop - 1 + last
        size = int(answer.headers["Content-Range"].rpartition("/")[2]) + total
        answer.headers["Content-Range"] = f"bytes {start}-{stop}/{size}"

    return change


def other_length(by: int):
    def change(request: Request, answer: Answer) -> None:
        answer.body = answer.body[:by] if by < 0 else answer.body + b"\0" * by
        answer.headers["Content-Length"] = str(len(answer.body))

    return change


def without(header: str):
    return lambda request, answer: answer.headers.pop(header)


def compressed(request: Request, answer: Answer) -> None:
    answer.headers["Content-Encoding"] = "gzip"


def empty_success(request: Request, answer: Answer) -> None:
    answer.status, answer.body, answer.headers = 204, b"", {}


def whole_file_of_other_length(request: Request, answer: Answer) -> None:
    answer.status, answer.body, answer.headers = 200, b"\0" * 70_000, {"Content-Length": "70000"}


WRONG_ANSWERS = {
    "range begins later": content_range(1, 0, 0),
    "range ends later": content_range(0, 1, 0),
    "file grew": content_range(0, 0, 1),
    "body too short": other_length(-1),
    "body too long": other_length(1),
    "no range": without("Content-Range"),
    "compressed": compressed,
    "empty": empty_success,
    "whole file of another length": whole_file_of_other_length,
}


@pytest.mark.parametrize("wrong", WRONG_ANSWERS.values(), ids=WRONG_ANSWERS.keys())
def test_a_wrong_answer_is_never_kept(wrong, hub: HubServer, tmp_path: Path) -> None:
    hub.fault = on_ranges(wrong)
    assert "5 times in a row" in failure()
    assert_nothing_finished(tmp_path)
    hub.fault = None
    assert_holds_needed(fetch_checkpoint(REPO, needed))


@pytest.mark.parametrize("wrong", WRONG_ANSWERS.values(), ids=WRONG_ANSWERS.keys())
def test_a_wrong_answer_followed_by_right_ones_does_no_harm(wrong, hub: HubServer) -> None:
    count = 0

    def now_and_then(request: Request, answer: Answer) -> None:
        nonlocal count
        count += 1
        if count % 3:
            wrong(request, answer)

    hub.fault = on_ranges(now_and_then)
    assert_holds_needed(fetch_checkpoint(REPO, needed))
    assert count == 9


# ---- refusals ----


def refuse(status: int, code: str = ""):
    def fault(request: Request, answer: Answer) -> None:
        answer.status, answer.headers, answer.body = status, {"X-Error-Code": code}, b""

    return fault


def test_an_unknown_model(hub: HubServer, tmp_path: Path) -> None:
    assert failure("someone/else").startswith(f"there is no model 'someone/else' on {hub.endpoint}")
    assert not (tmp_path / "assets").exists()


def test_an_unknown_revision(hub: HubServer) -> None:
    assert "someone/tiny has no revision 'v9'" in failure(revision="v9")


def test_a_model_without_config(hub: HubServer) -> None:
    del hub.repositories[REPO].files["config.json"]
    assert "someone/tiny has no config.json" in failure()


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
        if answer.status == 206:
            refuse(403)(request, answer)

    hub.fault = fault
    assert "`hf auth login`" in failure()
    assert len(hub.asked_for("model.safetensors")) == 1  # asking again would not help
    assert_nothing_finished(tmp_path)


def test_a_hub_in_trouble(hub: HubServer) -> None:
    hub.fault = refuse(500)
    assert f"{hub.endpoint} answers with HTTP 500; try again later" in failure()


def test_nobody_listens(hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{free.getsockname()[1]}"
    use_endpoint(monkeypatch, endpoint, tmp_path)
    line = failure()
    assert f"can't reach {endpoint} for someone/tiny" in line
    assert "HF_HUB_OFFLINE=1" in line
    assert "local folder" in line


def test_a_cached_model_does_not_mind_that_nobody_listens(
    hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = fetch_checkpoint(REPO, needed)
    use_endpoint(monkeypatch, "http://127.0.0.1:1", tmp_path)
    assert fetch_checkpoint(REPO, needed) == folder


@pytest.mark.parametrize("name", ["../up", "a/b/c", "white space", "-dash", "a" * 200])
def test_what_is_no_name_of_a_model(name: str, hub: HubServer) -> None:
    assert "neither a local folder nor a model's name" in failure(name)
    assert hub.requests == []


def test_a_pickle_alone_is_not_downloaded(hub: HubServer) -> None:
    hub.repositories[REPO].files = {**SMALL_FILES, "pytorch_model.bin": b"\x80\x04N."}
    line = failure()
    assert "only pytorch_model.bin, a pickle that can't be read in parts" in line
    assert "`hf download someone/tiny`" in line
    assert ".save_pretrained('FOLDER')" in line
    assert not hub.asked_for("pytorch_model.bin")


def test_no_weights_at_all(hub: HubServer) -> None:
    hub.repositories[REPO].files = dict(SMALL_FILES)
    assert "neither model.safetensors nor" in failure()


def test_a_folder_that_can_not_be_written(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("detoklens.weights.hub.checkpoint.write_atomically", full)
    assert "No space left on device; make room, or set HF_HOME" in failure()


# ---- hostile files ----


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
    monkeypatch.setattr("detoklens.weights.hub.access.LARGEST_SMALL_FILE", 1000)
    hub.repositories[REPO].files["tokenizer.json"] = b" " * 1001
    assert "tokenizer.json has 1,001 bytes" in failure()
    assert not hub.asked_for("tokenizer.json")


def test_a_tensor_that_is_needed_and_missing(hub: HubServer) -> None:
    with pytest.raises(CheckpointError, match="no tensor 'gone'"):
        fetch_checkpoint(REPO, lambda config, names: ["gone"])


# ---- caches ----


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
    assert sum(request.sent for request in hub.asked_for("model.safetensors")) == 65_536


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
    assert "someone/tiny is not in the hub's cache and HF_HUB_OFFLINE forbids" in failure()
    assert "at v9 is not in the hub's cache" in failure(revision="v9")
    assert hub.requests == []


def test_offline_after_an_interruption(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.fault = cut(after=5000, times=1, then=503)
    failure()
    go_offline(monkeypatch)
    hub.requests.clear()
    assert "the needed weights are not in the cache and HF_HUB_OFFLINE forbids" in failure()
    assert hub.requests == []


# ---- the real environment variables, in a process of its own ----


SCRIPT = """
import sys
from detoklens.weights.hub import fetch_checkpoint
assert not {"huggingface_hub", "httpx", "httpx2", "requests", "rich"} & set(sys.modules), "imported too early"
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
        assert {request.authorization for request in hub.requests} == {"Bearer hf_secret"}
        hub.requests.clear()
        offline = run_script(tmp_path, HF_ENDPOINT=hub.endpoint, HF_HUB_OFFLINE="1")
        assert hub.requests == []
    assert offline.stdout == online.stdout
    assert online.stderr == offline.stderr == ""
    assert tmp_path / "assets" in Path(online.stdout.strip()).parents
