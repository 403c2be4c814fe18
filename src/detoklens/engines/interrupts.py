"""Ctrl-C at a bad moment waits until that is over."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Ctrl-C is heard when the block ends.

    For short work in libraries that an exception in their midst makes end the process: numba loads its compiled loops
    through callbacks that can't raise one.
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
    """A process started here never hears Ctrl-C, not even while it starts; this one does where it has other threads."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
