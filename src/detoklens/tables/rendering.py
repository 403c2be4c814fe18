"""Tables for display: text that never wraps inside a number or token, and HTML for notebooks."""

from __future__ import annotations

import shutil
import textwrap
from bisect import bisect_right
from collections.abc import Sequence
from html import escape
from itertools import accumulate, pairwise

import polars as pl
from rich.cells import cell_len

from detoklens.errors import escape_unprintable
from detoklens.wording import column_cells, plural

DEFAULT_WIDTH = 100  # characters without a terminal
GAP = 2  # characters between two columns
BARS = "▁▂▃▄▅▆▇█"


def text_table(frame: pl.DataFrame, title: str = "", width: int | None = None, elsewhere: str = "") -> str:
    """The table as text: as many columns as fit the width, at least one, then the names of the others."""
    width = width or shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns
    columns = [[name, *column_cells(frame[name].to_list())] for name in frame.columns]
    widths = [max(map(cell_len, cells)) for cells in columns]  # a Chinese character takes two, a combining mark none
    fitting = max(1, bisect_right(list(accumulate(each + GAP for each in widths)), width))
    aligned = []
    for cells, wide, dtype in zip(columns[:fitting], widths, frame.dtypes, strict=False):
        padded = [(cell, " " * (wide - cell_len(cell))) for cell in cells]
        aligned.append([blank + cell if dtype.is_numeric() else cell + blank for cell, blank in padded])
    heading, *rows = (" " * GAP + (" " * GAP).join(row).rstrip() for row in zip(*aligned, strict=True))
    rule = " " * GAP + "─" * (sum(each + GAP for each in widths[:fitting]) - GAP)
    left_out = frame.columns[fitting:]
    more = [f"  {plural(len(left_out), 'more column')}{elsewhere}: {', '.join(left_out)}"] if left_out else []
    above = [_wrapped(escape_unprintable(title), width), ""] if title else []
    return "\n".join([*above, heading, rule, *rows, *(_wrapped(line, width) for line in more), "", ""])


def _wrapped(text: str, width: int) -> str:
    """Wrap a sentence without breaking words."""
    indent = " " * (len(text) - len(text.lstrip()))
    return textwrap.fill(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def html_table(frame: pl.DataFrame, title: str, rows: int) -> str:
    """The first rows as an HTML table with all text escaped."""
    head = frame.head(rows)
    sides = ["right" if dtype.is_numeric() else "left" for dtype in head.dtypes]
    cells = [column_cells(column.to_list()) for column in head]
    lines = []
    for element, row in [("th", head.columns), *(("td", row) for row in zip(*cells, strict=True))]:
        written = (
            f'<{element} style="text-align:{side}">{escape(cell)}</{element}>'
            for cell, side in zip(row, sides, strict=True)
        )
        lines.append(f"<tr>{''.join(written)}</tr>")
    more = f" ({rows} of {len(frame):,} rows)" if len(frame) > rows else ""
    return f"<table><caption>{escape(title)}{more}</caption>{''.join(lines)}</table>"


def sparkline(values: Sequence[float], width: int) -> str:
    """A curve in at most `width` characters, each a mean; the lowest is ▁, the highest █."""
    count = min(width, len(values))
    edges = [place * len(values) // count for place in range(count + 1)] if count else []
    means = [sum(values[begin:end]) / (end - begin) for begin, end in pairwise(edges)]
    if not means:
        return ""
    low, high = min(means), max(means)
    if high == low:
        return BARS[0] * len(means)
    return "".join(BARS[min(len(BARS) - 1, int((value - low) / (high - low) * len(BARS)))] for value in means)
