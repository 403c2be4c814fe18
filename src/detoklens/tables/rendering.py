"""Tables for display: text that never wraps inside a number or token, and HTML for notebooks."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING

from rich.cells import cell_len

from detoklens.errors import escape_unprintable
from detoklens.wording import column_cells, plural

if TYPE_CHECKING:
    import polars as pl

DEFAULT_WIDTH = 100  # characters without a terminal
GAP = 2  # characters between two columns
BARS = "▁▂▃▄▅▆▇█"


def text_table(frame: pl.DataFrame, title: str = "", width: int | None = None, elsewhere: str = "") -> str:
    """The table as text: as many columns as fit the width, then the names of the others."""
    width = width or shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns
    columns = {name: [name, *column_cells(frame[name].to_list())] for name in frame.columns}
    shown = fitting_columns(columns, width)
    aligned = [_aligned(columns[name], frame.schema[name].is_numeric()) for name in shown]
    heading, *rows = (" " * GAP + (" " * GAP).join(row).rstrip() for row in zip(*aligned, strict=True))
    rule = " " * GAP + "─" * (sum(_width(column) + GAP for column in aligned) - GAP)
    left_out = [name for name in frame.columns if name not in shown]
    more = [f"  {plural(len(left_out), 'more column')}{elsewhere}: {', '.join(left_out)}"] if left_out else []
    told = [_lines(escape_unprintable(title), width), ""] if title else []
    return "\n".join([*told, heading, rule, *rows, *(_lines(line, width) for line in more), "", ""])


def _lines(text: str, width: int) -> str:
    """Wrap a sentence without breaking words."""
    indent = " " * (len(text) - len(text.lstrip()))
    return textwrap.fill(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def fitting_columns(columns: Mapping[str, Sequence[str]], width: int) -> list[str]:
    """The first columns that fit the width; at least one."""
    shown: list[str] = []
    used = 0
    for name, cells in columns.items():
        used += _width(cells) + GAP
        if shown and used > width:
            break
        shown.append(name)
    return shown


def _width(cells: Sequence[str]) -> int:
    """Terminal columns of the widest cell; a Chinese character takes two, a combining mark none."""
    return max(map(cell_len, cells))


def _aligned(cells: Sequence[str], numeric: bool) -> list[str]:
    """Pad cells to equal width; numbers are right-aligned."""
    width = _width(cells)
    blanks = [" " * (width - cell_len(cell)) for cell in cells]
    return [blank + cell if numeric else cell + blank for blank, cell in zip(blanks, cells, strict=True)]


def html_table(frame: pl.DataFrame, title: str, rows: int) -> str:
    """The first rows as an HTML table with all text escaped."""
    head = frame.head(rows)
    cells = [column_cells(head[name].to_list()) for name in head.columns]
    numeric = [dtype.is_numeric() for dtype in head.schema.values()]
    lines = [_html_row("th", head.columns, numeric)]
    lines += [_html_row("td", row, numeric) for row in zip(*cells, strict=True)]
    more = f" ({rows} of {len(frame):,} rows)" if len(frame) > rows else ""
    return f"<table><caption>{escape(title)}{more}</caption>{''.join(lines)}</table>"


def _html_row(element: str, cells: Sequence[str], numeric: Sequence[bool]) -> str:
    aligned = ("right" if number else "left" for number in numeric)
    written = (
        f'<{element} style="text-align:{side}">{escape(cell)}</{element}>'
        for cell, side in zip(cells, aligned, strict=True)
    )
    return f"<tr>{''.join(written)}</tr>"


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
