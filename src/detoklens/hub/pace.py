"""Is a transfer fast enough to be waited for? Silence has a limit of its own; this one ends a drip of single bytes.

At any moment the time that is allowed is GRACE_SECONDS and what has arrived at LOWEST_RATE, so that n bytes take
GRACE_SECONDS + n / LOWEST_RATE at most, and a byte a second ends after little more than the grace.
"""

import queue
import threading
import time
from collections.abc import Callable
from typing import TypeVar

Answer = TypeVar("Answer")

GRACE_SECONDS = 60.0
LOWEST_RATE = 10_000  # bytes a second; a telephone's modem had half of it


class GivenUpError(Exception):
    """Waiting longer, or asking once more, makes no sense; what has arrived is kept."""


class Pace:
    """One transfer, however many requests it takes."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._begun = time.monotonic()
        self._received = 0

    def seconds_left(self) -> float:
        """How long may the next byte be waited for?"""
        return GRACE_SECONDS + self._received / LOWEST_RATE - (time.monotonic() - self._begun)

    def advance(self, count: int) -> None:
        """So many bytes have arrived: soon enough?"""
        self._received += count
        if self.seconds_left() < 0:
            raise self.too_slow()

    def too_slow(self) -> GivenUpError:
        """What is said where the time is over."""
        return GivenUpError(
            f"{self._url}: {self._received:,} bytes in {time.monotonic() - self._begun:.0f} s, too slow to be waited "
            f"for (after {GRACE_SECONDS:.0f} s the least is {LOWEST_RATE:,} bytes a second)"
        )


def in_time(ask: Callable[[], Answer], pace: Pace) -> Answer:
    """The answer, if it comes while the pace has time left.

    It is asked for in a thread, as a header that drips can't be interrupted by the one who reads it. A thread that is
    given up ends with its connection, and keeps no process alive.
    """
    outcome: queue.SimpleQueue[tuple[Answer | None, BaseException | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            outcome.put((ask(), None))
        except BaseException as error:  # raised again where the answer is waited for
            outcome.put((None, error))

    threading.Thread(target=run, daemon=True).start()
    while (left := pace.seconds_left()) > 0:
        try:
            answer, error = outcome.get(timeout=left)
        except queue.Empty:
            continue  # what has arrived meanwhile may have bought time
        if error is not None:
            raise error
        return answer  # type: ignore[return-value]
    raise pace.too_slow()
