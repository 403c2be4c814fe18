"""Servers that misbehave: never a wrong byte."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from detoklens.weights.hub_checkpoint import fetch_checkpoint
from tests.weights.hub.server import Answer, HubServer, Request
from tests.weights.hub.tiny_model import REPO, TENSORS, assert_holds_needed, assert_nothing_finished, failure, needed


def on_ranges(change):
    """A fault in each answer to a range request for weights."""

    def fault(request: Request, answer: Answer) -> None:
        if request.path.endswith(".safetensors") and request.range and answer.status == 206:
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


def test_a_server_that_ignores_range_is_left_after_the_last_needed_byte(hub: HubServer) -> None:
    long_tail = TENSORS | {"zz.unneeded": np.zeros(16_000_000, np.float32)}
    hub.repositories[REPO].files["model.safetensors"] = save(long_tail)
    hub.fault = ignore_range(hub)
    assert_holds_needed(fetch_checkpoint(REPO, needed))
    assert [request.sent for request in hub.asked_for("model.safetensors")] == [0, 0]  # neither to its end


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
