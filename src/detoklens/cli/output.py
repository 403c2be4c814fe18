"""Output of the command line: the table on stdout; summary, notes and progress on stderr."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import polars as pl
import typer

from detoklens.errors import OutputError, one_line
from detoklens.figures.save import is_ours, save
from detoklens.figures.spec import chosen_spec
from detoklens.figures.theme import inches
from detoklens.questions.answer import Answer, Comparison
from detoklens.questions.parameters import Parameter
from detoklens.tables.files import csv_bytes, parquet_bytes
from detoklens.tables.rendering import text_table
from detoklens.wording import plural

Format = Literal["table", "csv", "json", "parquet"]
ENDINGS = (".svg", ".pdf", ".png")
Width = Annotated[str, Parameter("Figure width: column is 3.3 inches, page is 7.", metavar="column|page|INCHES")]
UNLIMITED = 10_000  # characters: wide enough for every column


@dataclass(frozen=True)
class Printed:
    """How a table is printed."""

    output_format: Annotated[Format, Parameter("Output format.", flag="--format")] = "table"

    def __post_init__(self) -> None:
        """Refuse an impossible output before any work is done."""
        if self.output_format == "parquet" and sys.stdout.isatty():
            raise OutputError("parquet output is binary; redirect it to a file, e.g. > table.parquet")


@dataclass(frozen=True)
class Output(Printed):
    """How an answer is displayed and where it is written."""

    table: Annotated[str | None, Parameter("Table to print; --out writes all.", advanced=True)] = None
    by: Annotated[str | None, Parameter("Table to print, by what each row describes.")] = None
    wide: Annotated[bool, Parameter("Print all columns at any terminal width.", advanced=True)] = False
    figure: Annotated[Path | None, Parameter("Also save a figure: .svg, .pdf or .png.", metavar="FILE")] = None
    figure_name: Annotated[str | None, Parameter("Figure to draw. Default: the first.", advanced=True)] = None
    force: Annotated[bool, Parameter("Overwrite FILE even if detoklens did not draw it.", advanced=True)] = False
    width: Width = "page"
    out: Annotated[
        Path | None,
        Parameter("Also write all tables to this folder, as parquet and CSV.", metavar="DIR"),
    ] = None

    def __post_init__(self) -> None:
        """Refuse an impossible figure before any work is done."""
        super().__post_init__()
        if self.figure is None:
            return
        if self.figure.suffix.lower() not in ENDINGS:
            raise OutputError(
                f"{self.figure}: a figure is {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}; choose one of these endings"
            )
        inches(self.width)
        try:
            foreign = not self.force and self.figure.exists() and not is_ours(self.figure)
        except OSError as error:
            raise OutputError(f"{self.figure}: {error.strerror}; choose another file") from error
        if foreign:
            raise OutputError(f"{self.figure} is not a figure drawn by detoklens; choose another file or add --force")


def show_answer(answer: Answer, output: Output) -> None:
    """Draw and print an answer; refuse bad options before anything is printed."""
    named = output.table or answer.question.by.get(output.by or "")
    if named is not None and named not in answer.tables:
        raise OutputError(f"this answer has no table {named}; choose {', '.join(answer.tables)}")
    table = named or next(iter(answer.tables))
    if output.figure is not None:
        spec = chosen_spec([*answer.figures.values()], output.figure_name, answer.question.name())
        figure = answer.figure(spec.name, width=output.width)
        save(figure, output.figure, title=spec.title, description=spec.caption)
        say(f"drew {output.figure}")
    for note in answer.notes:
        say(note.replace("(all_tokens includes", "(--all-tokens includes"))
    if output.out is not None:
        say(f"wrote {plural(len(answer.tables), 'table')} to {output.out}")
    if output.output_format == "table":
        for view in [answer.question.view(answer.tables, table)] if named else answer.views:
            _print_text(view.frame, f"{answer.model}: {view.title}", " (--wide, or another --format)", output.wide)
        say(answer.sentence)
    elif output.output_format == "json":
        _print_bytes(f"{_as_json(answer, table)}\n".encode())
    else:
        _print_bytes(_encoded(answer.tables[table], output.output_format))


def _as_json(answer: Answer, table: str) -> str:
    """An answer as one JSON object: verdict, summary, and the rows of one table."""
    about: dict[str, object] = {"question": answer.question.name(), "model": answer.model}
    if isinstance(answer, Comparison):
        about["verdicts"] = {label: None if each is None else each.to_dict() for label, each in answer.verdicts.items()}
    else:
        about["verdict"] = None if answer.verdict is None else answer.verdict.to_dict()
    about |= {"summary": answer.sentence, "table": table}
    head = json.dumps(about, ensure_ascii=False)
    return f'{head[:-1]}, "rows": {answer.tables[table].write_json()}}}'


def print_table(frame: pl.DataFrame, output_format: Format, title: str, first: Sequence[str] = ()) -> None:
    """Print a table that is not an answer; `first` columns come first in a displayed table."""
    if output_format == "table":
        _print_text(frame.select(list(dict.fromkeys([*first, *frame.columns]))), title, " (in another --format)")
    else:
        _print_bytes(_encoded(frame, output_format))


def _print_text(frame: pl.DataFrame, title: str, elsewhere: str, wide: bool = False) -> None:
    """Print a table as wide as the terminal; unlimited into a pipe."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() and not wide else UNLIMITED
    sys.stdout.write(text_table(frame, title, width, elsewhere))


def _encoded(frame: pl.DataFrame, output_format: Format) -> bytes | memoryview:
    """A table in a machine-readable format."""
    if output_format == "csv":
        return csv_bytes(frame)
    return f"{frame.write_json()}\n".encode() if output_format == "json" else parquet_bytes(frame)


def _print_bytes(content: bytes | memoryview) -> None:
    """Write bytes in any encoding of stdout; text if stdout has no buffer."""
    if hasattr(sys.stdout, "buffer"):
        sys.stdout.buffer.write(content)
    else:
        sys.stdout.write(bytes(content).decode())


def say(message: str) -> None:
    """Print one line on stderr, dimmed in a terminal that shows colours."""
    plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    with contextlib.suppress(OSError):  # a note that can't be written does not stop the answer
        typer.echo(one_line(message) if plain else typer.style(one_line(message), dim=True), err=True)
