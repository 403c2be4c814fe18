"""Writes docs/cli.md from the commands' own help: `python docs/make_cli_reference.py`."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

REFERENCE = Path(__file__).parent / "cli.md"
BEFORE_EACH = "\f"
INTRODUCTION = """# Commands

This page is made by `make docs` from each command's own help. stdout is the answer (`--format table|csv|json|parquet`),
stderr is its sentence, notes and progress, files are written only under `--out` and `--figure`. Every question is also
a class in Python with the same parameters: see [in Python](python.md).

What changed when commands came to be made from questions; options that were there before still work:

- Every question has `--figure FILE` (`.svg`, `.pdf`, `.png`), `--figure-name` and `--width`, and says its answer in one
  sentence on stderr. `--out` writes CSV beside parquet, and what lies there from before is read, not computed again.
- A table for eyes shows the columns that fit the terminal and names the others; `--wide` shows all, a pipe always does.
- `--table NAME` prints any table of an answer; `--by` stays where it was. `auroc --roc` may be repeated.
- `--seed` is one seed for all that is drawn. `heads` has it too.
- A value that an option does not know (`--engine spark`) is a usage error with exit code 2; it was 1.
- `--counts` where they decide nothing is a note on stderr; it was an error for `positions`, `shape` and `variance`.
- Text cells of CSV that a spreadsheet would run begin with an apostrophe.
"""


def reference() -> str:
    """The whole page."""
    from detoklens.cli.app import topics

    commands = [name for names in topics().values() for name in names]
    names = [
        name for command in commands for name in ((command,) if command != "counts" else ("counts", "counts show"))
    ]
    parts = [f"## detoklens {name}\n\n```\n{text}\n```\n" for name, text in zip(names, _helps(names), strict=True)]
    return INTRODUCTION + "\n" + "\n".join(parts)


def _helps(names: list[str]) -> list[str]:
    """What each command says of itself; a process of its own has the width that is read when typer is imported."""
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
