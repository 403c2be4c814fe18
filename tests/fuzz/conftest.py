"""Each fuzzer's number of cases and memory, said after its last case: during it, a test may capture the output."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.fuzz import budget
from tests.fuzz.memory import peak

LARGEST_GROWTH = 1_500_000  # kB of any fuzzer; most have a smaller bound of their own


@pytest.fixture(autouse=True)
def cases_are_counted() -> Iterator[None]:
    budget.TRIED.clear()
    before = peak()
    yield
    if budget.TRIED:
        growth = peak() - before
        grown = f"peak memory grew by {growth / 1000:,.0f} MB to {peak() / 1000:,.0f} MB"
        sys.stdout.write(f"{sum(budget.TRIED):,} cases from seed {budget.first_seed()}; {grown}\n")
        assert growth < LARGEST_GROWTH
