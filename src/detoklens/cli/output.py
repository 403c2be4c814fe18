"""Output of the command line: the table on stdout; summary, notes and progress on stderr."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from rich.console import Console

from detoklens.errors import OutputError, one_line
from detoklens.figures.spec import chosen_spec
from detoklens.questions.answer import Comparison
from detoklens.questions.parameters import Parameter
from detoklens.tables.files import csv_bytes, parquet_bytes
from detoklens.tables.rendering import text_table
from detoklens.wording import plural

if TYPE_CHECKING:
    import polars as pl

    from detoklens.questions.answer import Answer
    from detoklens.questions.base import Question, View

Format = Literal["table", "csv", "json", "parquet"]
ENDINGS = (".svg", ".pdf", ".png")
UNLIMITED = 10_000  # characters: wide enough for every column


@dataclass(frozen=True)
class Printed:
    """How a table is printed."""

    output_format: Annotated[Format, Parameter("Output format.", flag="--format")] = "table"

    def __post_init__(self) -> None:
        """Refuse an impossible output before any work is done."""
        if self.output_format == "parquet" and sys.stdout.isatty():
            raise OutputError("parquet is binary and this is a terminal: add `> table.parquet`")


@dataclass(frozen=True)
class Output(Printed):
    """How an answer is displayed and where it is written."""

    table: Annotated[str | None, Parameter("Table to print; --out writes all.", advanced=True)] = None
    by: Annotated[str | None, Parameter("Table to print, named after its rows.")] = None
    wide: Annotated[bool, Parameter("Print all columns at any terminal width.", advanced=True)] = False
    figure: Annotated[Path | None, Parameter("Also save a figure: .svg, .pdf or .png.", metavar="FILE")] = None
    figure_name: Annotated[str | None, Parameter("Figure to draw. Default: the first.", advanced=True)] = None
    force: Annotated[bool, Parameter("Overwrite FILE even if detoklens did not draw it.", advanced=True)] = False
    width: Annotated[str, Parameter("Figure width: column is 3.3 inches, page is 7.", metavar="column|page|INCHES")] = (
        "page"
    )
    out: Annotated[
        Path | None,
        Parameter("Also write all tables to this folder, as parquet and CSV.", metavar="DIR"),
    ] = None

    def __post_init__(self) -> None:
        """Refuse an impossible figure before any work is done."""
        super().__post_init__()
        if self.figure is not None and self.figure.suffix.lower() not in ENDINGS:
            raise OutputError(
                f"{self.figure}: a figure is {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}; choose one of these endings"
            )
        if self.figure is not None:
            chosen_width(self.width)
            _refuse_foreign_figure(self.figure, self.force)

    def check(self, question: Question) -> None:
        """Refuse a figure that this question does not have."""
        if self.figure is not None:
            chosen_spec(question.specs(), self.figure_name, question.name())


def show_answer(answer: Answer, output: Output) -> None:
    """Draw and print an answer; refuse bad options before anything is printed."""
    named = _named_table(answer, output)
    if output.figure is not None:
        draw(answer, output.figure, output.figure_name, output.width)
    for note in answer.notes:
        say(note)
    if output.out is not None:
        say(f"wrote {plural(len(answer.tables), 'table')} to {output.out}")
    if output.output_format == "table":
        views = [answer.question.view(answer.tables, named)] if named else answer.views
        print_views(views, answer.model, output.wide)
        say(answer.sentence)
    elif output.output_format == "json":
        _write(f"{_as_json(answer, named or next(iter(answer.tables)))}\n".encode())
    else:
        emit(answer.tables[named or next(iter(answer.tables))], output.output_format)


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


def _named_table(answer: Answer, output: Output) -> str | None:
    """The table that --table or --by names; None for the question's default."""
    name = output.table or answer.question.table_by(output.by or "")
    if name is not None and name not in answer.tables:
        raise OutputError(f"this answer has no table {name}; choose {', '.join(answer.tables)}")
    return name


def print_views(views: Sequence[View], model: str, wide: bool = False) -> None:
    """Print tables as wide as the terminal; unlimited into a pipe."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() and not wide else UNLIMITED
    for view in views:
        sys.stdout.write(text_table(view.frame, f"{model}: {view.title}", width, " (--wide, or another --format)"))


def print_table(frame: pl.DataFrame, output_format: Format, title: str, first: Sequence[str] = ()) -> None:
    """Print a table that is not an answer; `first` columns come first in a displayed table."""
    if output_format == "table":
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else UNLIMITED
        ordered = frame.select(list(dict.fromkeys([*first, *frame.columns])))
        sys.stdout.write(text_table(ordered, title, width, " (in another --format)"))
    else:
        emit(frame, output_format)


def emit(frame: pl.DataFrame, output_format: Format) -> None:
    """Print a table in a machine-readable format."""
    if output_format == "csv":
        _write(csv_bytes(frame))
    elif output_format == "json":
        _write(f"{frame.write_json()}\n".encode())
    else:
        _write(parquet_bytes(frame))


def _write(content: bytes | memoryview) -> None:
    """Write bytes in any encoding of stdout; text if stdout has no buffer."""
    if hasattr(sys.stdout, "buffer"):
        sys.stdout.buffer.write(content)
    else:
        sys.stdout.write(bytes(content).decode())


def draw(answer: Answer, path: Path, name: str | None, width: str) -> None:
    """Draw one figure of an answer; the file's ending determines the format."""
    from detoklens.figures.save import save

    spec = answer.spec(name)
    save(answer.figure(spec.name, width=chosen_width(width)), path, title=spec.title, description=spec.caption)
    say(f"drew {path}")


def _refuse_foreign_figure(path: Path, force: bool) -> None:
    """Refuse to overwrite a file that detoklens did not draw, unless forced."""
    from detoklens.figures.save import is_ours

    try:
        if force or not path.exists() or is_ours(path):
            return
    except OSError as error:
        raise OutputError(f"{path}: {error.strerror}; name another file") from error
    raise OutputError(f"{path} is not a figure drawn by detoklens; name another file or add --force")


def chosen_width(text: str) -> str | float:
    """`column`, `page`, or a number of inches; an error for anything else."""
    from detoklens.figures.theme import WIDTHS, inches

    inches(text)
    return text if text in WIDTHS else float(text)


def say(message: str) -> None:
    """Print one line on stderr."""
    with contextlib.suppress(OSError):  # a note that can't be written does not stop the answer
        Console(stderr=True, soft_wrap=True).print(one_line(message), markup=False, highlight=False, style="dim")
