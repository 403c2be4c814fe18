"""How much memory does a fuzzer take? An error beyond a bound."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def bounded_memory(largest_growth: int) -> Iterator[None]:
    """The process's peak may grow by so many kB: a case that asks for GBs is seen, whichever library asks for them."""
    before = peak()
    yield
    assert peak() - before < largest_growth


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
