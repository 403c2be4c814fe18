"""Writes docs/cli.md from the commands' own help: `python docs/make_cli_reference.py`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

REFERENCE = Path(__file__).parent / "cli.md"
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
    parts = [f"## detoklens {name}\n\n```\n{_help(name)}\n```\n" for name in names]
    return INTRODUCTION + "\n" + "\n".join(parts)


def _help(name: str) -> str:
    environment = {**os.environ, "COLUMNS": "110", "TERMINAL_WIDTH": "110", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "detoklens", *name.split(), "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return done.stdout.replace("python -m detoklens", "detoklens").strip()


if __name__ == "__main__":
    REFERENCE.write_text(reference(), encoding="utf-8")
