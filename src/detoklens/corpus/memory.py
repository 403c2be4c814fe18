"""Memory limits: sizes as people write them, and each worker's share of the machine's memory."""

from __future__ import annotations

import re

from detoklens.errors import DetokLensError
from detoklens.parallel import available_cores, machine_memory

UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", re.IGNORECASE)
SMALLEST_SHARE = 32 << 20
"""Bytes that a worker needs for its batch, keys and runs."""


def parse_size(text: str, option: str) -> int:
    """Return the bytes of `500MB`, `4 GiB`, `2g` or a plain number."""
    match = SIZE.fullmatch(text.strip())
    if match is None:
        raise DetokLensError(f"{option} {text!r} is not a size; pass e.g. 500MB or 4GB")
    number, unit, is_binary = match.groups()
    base = UNITS[unit.lower()]
    if is_binary:
        base = 2 ** (10 * list(UNITS).index(unit.lower()))
    size = int(float(number) * base)
    if size < 1:
        raise DetokLensError(f"{option} {text!r} is less than a byte; pass e.g. 500MB or 4GB")
    return size


def default_memory() -> int:
    """Return a quarter of the memory of this machine or container."""
    return machine_memory() // 4


def default_share() -> int:
    """Memory of one worker of `detoklens count` by default; the limit for reading documents elsewhere."""
    return max(SMALLEST_SHARE, default_memory() // available_cores())


def share_of(memory: int, workers: int) -> int:
    """Return the bytes available to one worker."""
    share = memory // workers
    if share < SMALLEST_SHARE:
        raise DetokLensError(
            f"{memory >> 20} MB for {workers} workers is {share >> 20} MB each, but a worker needs "
            f"{SMALLEST_SHARE >> 20} MB; allow more memory or fewer workers"
        )
    return share


def longest_document(memory: int) -> int:
    """The largest document that fits into a worker's memory: with its copies and ids, it takes 8 times its size."""
    return memory // 16
