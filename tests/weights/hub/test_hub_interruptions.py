"""A transfer that breaks off is taken up where it broke, now or by a later call."""

from __future__ import annotations

import io
import socket
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save

from detoklens.hub import session
from detoklens.hub.session import MAX_ATTEMPTS, RemoteFile
from detoklens.weights.hub_checkpoint import fetch_checkpoint
from tests.weights.hub.server import Answer, HubServer, Request
from tests.weights.hub.tiny_model import (
    NEEDED,
    NEEDED_BYTES,
    REPO,
    TENSORS,
    assert_holds_needed,
    assert_nothing_finished,
    cut,
    failure,
    needed,
    tensor_requests,
)


def test_a_broken_connection_is_taken_up_where_it_broke(hub: HubServer) -> None:
    hub.fault = cut(after=5000, times=2)
    assert_holds_needed(fetch_checkpoint(REPO, needed))
    first, second, third, *_ = tensor_requests(hub)
    assert second == range(first.start + 5000, first.stop)
    assert third == range(first.start + 10_000, first.stop)


def test_a_connection_that_breaks_often_but_moves_on_gets_there(hub: HubServer) -> None:
    hub.fault = cut(after=1300, times=3 * MAX_ATTEMPTS)
    assert_holds_needed(fetch_checkpoint(REPO, needed))
    assert len(tensor_requests(hub)) > 3 * MAX_ATTEMPTS


def test_a_later_call_continues_from_the_bytes_on_disk(hub: HubServer, tmp_path: Path) -> None:
    hub.fault = cut(after=5000, times=1, then=503)
    assert "HTTP 503, 5 times in a row; run the same command again" in failure()
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
    real = session.stream_ranges

    def interrupted(remote: RemoteFile, ranges: list[range]):
        if len(ranges) < 2:  # the header
            yield from real(remote, ranges)
            return
        yield next(real(remote, ranges))
        raise KeyboardInterrupt

    monkeypatch.setattr(session, "stream_ranges", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fetch_checkpoint(REPO, needed)
    monkeypatch.setattr(session, "stream_ranges", real)
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


def test_a_kept_connection_that_the_hub_has_closed_is_no_failure(hub: HubServer) -> None:
    """As hubs do with idle connections: here the first request of each kind finds its connection closed."""
    seen: set[tuple[str, str]] = set()

    def hang_up_once(request: Request, answer: Answer) -> None:
        if (request.method, request.path) not in seen:
            seen.add((request.method, request.path))
            hub.connections[-1].shutdown(socket.SHUT_RDWR)

    hub.fault = hang_up_once
    assert_holds_needed(fetch_checkpoint(REPO, needed))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_progress(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("detoklens.progress.PATIENCE", 0)
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    fetch_checkpoint(REPO, needed)
    shown = terminal.getvalue()
    assert "someone/tiny (bytes)" in shown
    assert "config.json" not in shown  # small files have no bars of their own
