"""How many cases does a fuzzer try? A bounded number in the tests; as many as time allows with `make fuzz`."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator

SECONDS = "DETOKLENS_FUZZ_SECONDS"  # for each fuzzer; unset in the tests
SEED = "DETOKLENS_FUZZ_SEED"  # of the first case; each next case has the next seed


def cases(few: int) -> Iterator[random.Random]:
    """A source of chance for each case, the same ones in every run: `few` of them, or as many as the time allows."""
    first = int(os.environ.get(SEED, "0"))
    seconds = os.environ.get(SECONDS)
    ends = None if seconds is None else time.monotonic() + float(seconds)
    number = 0
    while number < few or (ends is not None and time.monotonic() < ends):
        yield random.Random(first + number)
        number += 1
