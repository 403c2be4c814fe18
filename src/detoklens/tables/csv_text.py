"""Tables as CSV: numbers as they are, and no text that a spreadsheet would run.

A spreadsheet takes a cell that begins with =, +, -, @, a tab or a line break for a formula, and tokens do begin so. The
usual convention is an apostrophe in front, which it takes for "this is text". Texts that begin so behind apostrophes
get one more as well, so that taking one away gives back every text.
"""

from __future__ import annotations

import polars as pl

FORMULA = r"^'*[=+\-@\t\r\n＝＋－＠]"
NOTE = (
    "In CSV, a text that begins with `=`, `+`, `-`, `@`, a tab or a line break (also behind apostrophes) has an "
    "apostrophe in front, so that no spreadsheet takes it for a formula; numbers are as they are. Parquet has every "
    "text as it is."
)


def csv_bytes(frame: pl.DataFrame) -> bytes:
    """The table as the content of a CSV file."""
    looks_like_formula = pl.col(pl.String).str.contains(FORMULA)
    safe = pl.when(looks_like_formula).then(pl.lit("'") + pl.col(pl.String)).otherwise(pl.col(pl.String))
    return frame.with_columns(safe.name.keep()).write_csv().encode()
