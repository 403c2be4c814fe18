"""Write docs/cli.md from the commands' help: `python docs/make_cli_reference.py`."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

REFERENCE = Path(__file__).parent / "cli.md"
BEFORE_EACH = "\f"
INTRODUCTION = """# Commands

`make docs` generates this page from each command's help. stdout is the answer (`--format table|csv|json|parquet`);
stderr has its summary, notes and progress. Questions write files only where `--out` and `--figure` say. Every question
is also a Python class with the same parameters: see [In Python and in notebooks](python.md).

Common to all questions:

- `--figure FILE` (`.svg`, `.pdf`, `.png`) draws a figure; `--figure-name` and `--width` select which one and how wide.
- `--out` writes each table as CSV and parquet. Answers already there are read back, not recomputed.
- In a terminal, a table shows the columns that fit and names the others; `--wide` shows all. Piped output has all.
- `--table NAME` prints any table of an answer.
- `--seed` is the only random seed; it covers everything that is sampled.
- A value that an option does not accept (`--engine spark`) is a usage error with exit code 2.
- `--counts` is ignored, with a note on stderr, where counts don't affect the answer.
- In CSV, text cells that a spreadsheet would run as a formula get a leading apostrophe.
"""


def reference() -> str:
    """Return the whole page."""
    from detoklens.cli.app import topics

    commands = [name for names in topics().values() for name in names]
    names = [
        name for command in commands for name in ((command,) if command != "counts" else ("counts", "counts show"))
    ]
    parts = [f"## detoklens {name}\n\n```\n{text}\n```\n" for name, text in zip(names, _helps(names), strict=True)]
    return INTRODUCTION + "\n" + "\n".join(parts)


def _helps(names: list[str]) -> list[str]:
    """Return each command's help. It runs in a new process, because typer reads the terminal width on import."""
    environment = {**os.environ, "COLUMNS": "110", "TERMINAL_WIDTH": "110", "NO_COLOR": "1"}
    command = [sys.executable, __file__, *names]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return [text.strip() for text in done.stdout.split(BEFORE_EACH)[1:]]


def print_helps(names: list[str]) -> None:
    from detoklens.__main__ import main

    for name in names:
        print(BEFORE_EACH)
        sys.argv = ["detoklens", *name.split(), "--help"]
        with contextlib.suppress(SystemExit):
            main()


if __name__ == "__main__":
    if sys.argv[1:]:
        print_helps(sys.argv[1:])
    else:
        REFERENCE.write_text(reference(), encoding="utf-8")
