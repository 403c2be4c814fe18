"""The deadline of a transfer, which grows with the bytes that arrive.

A read timeout ends silence; this deadline also ends a server that sends one byte at a time. Receiving n bytes may take
GRACE_SECONDS + n / MIN_BYTES_PER_SECOND.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

from detoklens.hub.errors import TransferError

Result = TypeVar("Result")

GRACE_SECONDS = 60.0
MIN_BYTES_PER_SECOND = 10_000


class TransferTimeout:
    """The deadline of one transfer, however many requests it takes."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._started = time.monotonic()
        self._received = 0

    def seconds_left(self) -> float:
        """Seconds until the transfer has to stop; negative if it is too late."""
        return GRACE_SECONDS + self._received / MIN_BYTES_PER_SECOND - (time.monotonic() - self._started)

    def advance(self, count: int) -> None:
        """Record `count` received bytes and raise if they arrived too slowly."""
        self._received += count
        self.check()

    def check(self) -> None:
        """Raise a TransferError if the deadline has passed."""
        if self.seconds_left() < 0:
            raise TransferError(
                f"{self._url}: too slow, {self._received:,} bytes in {time.monotonic() - self._started:.0f} s "
                f"(required: {MIN_BYTES_PER_SECOND:,} bytes per second after {GRACE_SECONDS:.0f} s)"
            )

    def run(self, call: Callable[[], Result]) -> Result:
        """Return `call()`, or raise once the deadline has passed.

        The call runs in a daemon thread because a blocked read of slow headers can't be interrupted. A thread that is
        left behind ends with its connection.
        """
        future: Future[Result] = Future()

        def set_result() -> None:
            try:
                future.set_result(call())
            except BaseException as error:
                future.set_exception(error)  # raised again by future.result()

        threading.Thread(target=set_result, daemon=True).start()
        while not future.done():
            self.check()
            wait([future], timeout=max(0, self.seconds_left()))
        return future.result()
