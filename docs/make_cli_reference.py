"""Writes docs/cli.md from the commands' own help: `python docs/make_cli_reference.py`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

REFERENCE = Path(__file__).parent / "cli.md"
INTRODUCTION = """# Commands

This page is made by `make docs` from each command's own help. stdout is the answer (`--format table|csv|json|parquet`),
stderr is progress, files are written only under `--out`.
"""


def reference() -> str:
    """The whole page."""
    from detoklens.cli.app import COMMANDS

    names = [
        name for command in COMMANDS for name in ((command,) if command != "counts" else ("counts", "counts show"))
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
