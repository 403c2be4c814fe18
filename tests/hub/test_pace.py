"""How long may a transfer take? By a clock of the tests' own."""

from __future__ import annotations

import pytest

from detoklens.hub import pace
from detoklens.hub.pace import GivenUpError, Pace, in_time


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr("detoklens.hub.pace.time.monotonic", lambda: now[0])
    monkeypatch.setattr(pace, "GRACE_SECONDS", 60)
    monkeypatch.setattr(pace, "LOWEST_RATE", 10_000)
    return now


def seconds_until_given_up(clock: list[float], bytes_a_second: int, size: int) -> float | None:
    transfer, begun = Pace("http://hub/file"), clock[0]
    for _ in range(size // bytes_a_second):
        clock[0] += 1
        try:
            transfer.advance(bytes_a_second)
        except GivenUpError:
            return clock[0] - begun
    return None


def test_a_byte_a_second_ends_soon_after_the_grace(clock: list[float]) -> None:
    assert seconds_until_given_up(clock, 1, 10_000) == 61


def test_the_lowest_rate_is_fast_enough_for_any_size(clock: list[float]) -> None:
    assert seconds_until_given_up(clock, 10_000, 10**9) is None


def test_the_whole_transfer_has_a_deadline_by_its_size(clock: list[float]) -> None:
    assert seconds_until_given_up(clock, 9_000, 10**9) == 601  # 60 s and a tenth of the time more


def test_what_came_fast_pays_for_a_slow_end(clock: list[float]) -> None:
    transfer = Pace("http://hub/file")
    transfer.advance(10**6)
    assert transfer.seconds_left() == 160
    clock[0] += 160.5
    with pytest.raises(GivenUpError, match="1,000,001 bytes in 160 s, too slow"):
        transfer.advance(1)


def test_an_answer_in_time_and_an_error_are_handed_on() -> None:
    assert in_time(lambda: 7, Pace("")) == 7
    with pytest.raises(KeyError):
        in_time(lambda: {}["missing"], Pace(""))
