"""Sizes as people write them, and shares of the memory."""

import os

import pytest

from detoklens.cli.adapter import parse_size
from detoklens.corpus.documents import default_memory, share_of
from detoklens.errors import DetokLensError
from detoklens.parallel import machine_memory


@pytest.mark.parametrize(
    ("text", "size"),
    [("500MB", 500_000_000), ("4 GiB", 4 << 30), ("2g", 2_000_000_000), ("1.5kb", 1500), ("7", 7), ("1Ti", 1 << 40)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text, "--memory") == size


@pytest.mark.parametrize("text", ["", "much", "-1GB", "1 XB", "1e9", "0", "0.1"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(DetokLensError, match=r"^--memory .*; pass e\.g\. 500MB or 4GB$"):
        parse_size(text, "--memory")


def test_the_default_is_a_quarter_of_the_machine() -> None:
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 < default_memory() == machine_memory() // 4 <= physical // 4


def test_workers_share_the_memory() -> None:
    assert share_of(1 << 30, 4) == 1 << 28
    with pytest.raises(DetokLensError, match="100 MB for 16 workers is 6 MB each, but a worker needs 32 MB"):
        share_of(100 << 20, 16)
