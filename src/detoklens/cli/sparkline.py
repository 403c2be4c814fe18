"""A curve as one line of text."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int) -> str:
    """The curve in at most `width` characters, each the mean of its stretch; the lowest is ▁, the highest █."""
    means = _stretches(values, width)
    low, high = min(means), max(means)
    if high == low:
        return BARS[0] * len(means)
    return "".join(BARS[min(len(BARS) - 1, int((value - low) / (high - low) * len(BARS)))] for value in means)


def _stretches(values: Sequence[float], width: int) -> list[float]:
    count = min(width, len(values))
    edges = [place * len(values) // count for place in range(count + 1)]
    return [sum(values[begin:end]) / (end - begin) for begin, end in pairwise(edges)]
