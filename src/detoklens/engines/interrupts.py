"""Defer or block Ctrl-C during work that must not be interrupted."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Handle Ctrl-C when the block ends.

    For short work in libraries where an exception would end the process: numba loads compiled loops through callbacks
    that can't raise.
    """
    before = signal.getsignal(signal.SIGINT)
    if not callable(before) or threading.current_thread() is not threading.main_thread():
        yield
        return
    met: list[FrameType | None] = []
    signal.signal(signal.SIGINT, lambda _, frame: met.append(frame))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if met:
            before(signal.SIGINT, met[0])


@contextlib.contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Start processes that ignore Ctrl-C from the beginning."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
