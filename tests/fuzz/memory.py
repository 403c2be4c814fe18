"""How much memory does a fuzzer take? Said by `make fuzz`, and an error beyond a bound."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def bounded_memory(largest_growth: int) -> Iterator[None]:
    """The process's peak may grow by so many kB: a case that asks for GBs is seen, whichever library asks for them."""
    before = _peak()
    yield
    growth = _peak() - before
    sys.stdout.write(f"peak memory grew by {growth / 1000:,.0f} MB to {_peak() / 1000:,.0f} MB\n")
    assert growth < largest_growth


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
