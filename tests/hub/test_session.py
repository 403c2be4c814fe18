"""How long a transfer may take, with the tests' own clock."""

from __future__ import annotations

import threading
import time

import pytest

from detoklens.hub import session
from detoklens.hub.session import TransferError, TransferTimeout


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr("detoklens.hub.session.time.monotonic", lambda: now[0])
    monkeypatch.setattr(session, "GRACE_SECONDS", 60)
    monkeypatch.setattr(session, "MIN_BYTES_PER_SECOND", 10_000)
    return now


def seconds_until_abandoned(clock: list[float], bytes_per_second: int, size: int) -> float | None:
    transfer, started = TransferTimeout("http://hub/file"), clock[0]
    for _ in range(size // bytes_per_second):
        clock[0] += 1
        try:
            transfer.advance(bytes_per_second)
        except TransferError:
            return clock[0] - started
    return None


def test_a_byte_per_second_ends_soon_after_the_grace_period(clock: list[float]) -> None:
    assert seconds_until_abandoned(clock, 1, 10_000) == 61


def test_the_minimum_rate_is_fast_enough_for_any_size(clock: list[float]) -> None:
    assert seconds_until_abandoned(clock, 10_000, 10**9) is None


def test_the_whole_transfer_has_a_deadline_by_its_size(clock: list[float]) -> None:
    assert seconds_until_abandoned(clock, 9_000, 10**9) == 601  # 60 s and a tenth of the time more


def test_a_fast_start_pays_for_a_slow_end(clock: list[float]) -> None:
    transfer = TransferTimeout("http://hub/file")
    transfer.advance(10**6)
    assert transfer.seconds_left() == 160
    clock[0] += 160.5
    with pytest.raises(TransferError, match="too slow, 1,000,001 bytes in 160 s"):
        transfer.advance(1)


def test_run_returns_the_result_or_raises_the_error() -> None:
    assert TransferTimeout("").run(lambda: 7) == 7
    with pytest.raises(KeyError):
        TransferTimeout("").run(lambda: {}["missing"])


def test_run_leaves_a_call_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "GRACE_SECONDS", 0.05)
    ended, started = threading.Event(), time.monotonic()
    with pytest.raises(TransferError, match="too slow"):
        TransferTimeout("http://hub/file").run(lambda: ended.wait(60))
    assert time.monotonic() - started < 30
    ended.set()
