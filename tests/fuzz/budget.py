"""How many cases does a fuzzer try? A bounded number in the tests; as many as time allows with `make fuzz`."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator

SECONDS = "DETOKLENS_FUZZ_SECONDS"  # for each fuzzer; unset in the tests
SEED = "DETOKLENS_FUZZ_SEED"  # of the first case; each next case has the next seed


def has_time() -> bool:
    """Whether this is `make fuzz`, not the tests."""
    return SECONDS in os.environ


def first_seed() -> int:
    return int(os.environ.get(SEED, "0"))


TRIED: list[int] = []
"""The number of cases of each loop of the test that is running."""


def cases(few: int) -> Iterator[random.Random]:
    """A source of chance for each case, the same ones in every run: `few` of them, or as many as the time allows."""
    ends = time.monotonic() + float(os.environ.get(SECONDS, "-inf"))
    number = 0
    try:
        while number < few or time.monotonic() < ends:
            yield random.Random(first_seed() + number)
            number += 1
    finally:
        TRIED.append(number)
