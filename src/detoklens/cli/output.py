"""How answers leave the command line: the table on stdout, notes and progress on stderr."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from detoklens.cli.options import Format
from detoklens.errors import OutputError

if TYPE_CHECKING:
    import polars as pl

DIGITS = 4  # significant digits of a number in a printed table


def emit(frame: pl.DataFrame, output_format: Format, title: str | None = None) -> None:
    """Print a table on stdout in the asked format."""
    match output_format:
        case Format.table:
            _print_table(frame, title)
        case Format.csv:
            sys.stdout.write(frame.write_csv())
        case Format.json:
            sys.stdout.write(frame.write_json() + "\n")
        case Format.parquet:
            if sys.stdout.isatty():
                raise OutputError("parquet is binary and this is a terminal: add `> table.parquet`")
            frame.write_parquet(sys.stdout.buffer)


def say(message: str) -> None:
    """One line on stderr, beside the answer."""
    from rich.console import Console

    Console(stderr=True, soft_wrap=True).print(message, markup=False, highlight=False, style="dim")


def _print_table(frame: pl.DataFrame, title: str | None) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(width=None if sys.stdout.isatty() else 10_000)
    table = Table(title=Text(title) if title else None, box=SIMPLE_HEAD, title_justify="left")
    for name, dtype in frame.schema.items():
        table.add_column(Text(name), justify="right" if dtype.is_numeric() else "left", overflow="fold")
    columns = [_shown_column(frame[name].to_list()) for name in frame.columns]
    for row in zip(*columns, strict=True):
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)


def _shown_column(values: list[object]) -> list[str]:
    """One column for eyes; text is quoted where a space at its end or a control character would not be seen."""
    quoted = any(isinstance(value, str) and (value != value.strip() or not value.isprintable()) for value in values)
    return [value if isinstance(value, str) and not quoted else shown(value) for value in values]


def shown(value: object) -> str:
    """A value for eyes: rounded numbers, text in quotes with control characters escaped, a dash for null."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.{DIGITS}g}"
    if isinstance(value, str):
        return repr(value)
    return str(value)
