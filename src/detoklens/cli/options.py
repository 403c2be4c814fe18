"""Arguments and options that several commands share, so that each is spelled and explained once."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from detoklens import demo

LONGEST_RANGE = 1_000_000  # numbers in one `first-last`: more than any model has of anything


class Format(StrEnum):
    """How a table is printed."""

    table = "table"
    csv = "csv"
    json = "json"
    parquet = "parquet"


Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A folder in Hugging Face layout, a hub id such as gpt2, or demo, which comes along.",
    ),
]
Heads = Annotated[
    str | None,
    typer.Option("--heads", metavar="0,7", help="Only these heads, from 0. Default: all.", show_default=False),
]
FormatOption = Annotated[
    Format,
    typer.Option("--format", help="How the table is printed: for eyes, or to be read by another program."),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="Also write the tables into this folder.", show_default=False),
]


def counts_named(folder: Path | None) -> Path | None:
    """`demo` names the counts that come with the package, unless a folder is called so."""
    return demo.COUNTS if folder == Path(demo.NAME) and not folder.exists() else folder


CountsFolder = Annotated[
    Path | None,
    typer.Option(
        "--counts",
        metavar="COUNTS",
        help="Corpus counts, as `detoklens count` writes them; those of the demo model are called demo.",
        callback=counts_named,
        show_default=False,
    ),
]
Revision = Annotated[
    str | None, typer.Option("--revision", help="Branch, tag or commit of a hub model.", show_default=False)
]
Centred = Annotated[
    bool,
    typer.Option("--centred", help="Subtract each key's mean over all query tokens before ranking keys."),
]


def whole_numbers(text: str | None, what: str) -> list[int] | None:
    """Read `0,7` or `0-3,7`; None stays None."""
    if text is None:
        return None
    numbers: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(r"(\d{1,18})(?:-(\d{1,18}))?", part.strip())
        if not found:
            raise typer.BadParameter(f"{text!r} is no list of {what}; write for example 0,7 or 0-3")
        first, last = int(found[1]), int(found[2] or found[1])
        if not 0 <= last - first < LONGEST_RANGE:
            raise typer.BadParameter(f"{part.strip()} runs backwards or too far; write for example 0-3")
        numbers.extend(range(first, last + 1))
    return numbers
