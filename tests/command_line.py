"""Run the command line in this process, through `main`, because starting a new one is slow."""

from __future__ import annotations

import contextlib
import io
import sys
from dataclasses import dataclass
from typing import TextIO
from unittest.mock import patch

from detoklens.__main__ import main

# Starts the program in a new process, with a short word list and with figures that are files and no drawings: both are
# most of a report's work.
PROGRAM = [
    sys.executable,
    "-c",
    """
from detoklens.measures import words
from detoklens.report import drawing
shipped = words.shipped_words()
words.shipped_words = lambda: shipped[::20]
drawing.draw_files = lambda _, width, formats: dict.fromkeys((*formats, drawing.PHONE), b"<?xml?>\\n<svg/>")
from detoklens.__main__ import main
main()
""",
]


@dataclass(frozen=True)
class Result:
    """What a command left behind."""

    exit_code: int
    stdout: str
    stderr: str


def call(*arguments: object, answer_to: TextIO | None = None) -> Result:
    """Run `detoklens ARGUMENTS`, whatever comes of it, its answer read here or written to an open file."""
    stdout, stderr = io.StringIO(), io.StringIO()
    with (
        patch.object(sys, "argv", ["detoklens", *map(str, arguments)]),
        contextlib.redirect_stdout(answer_to or stdout),
        contextlib.redirect_stderr(stderr),
    ):
        try:
            main()
            exit_code = 0
        except SystemExit as end:
            exit_code = int(end.code or 0)
    return Result(exit_code, stdout.getvalue(), stderr.getvalue())


def run(*arguments: object) -> Result:
    """Run a command that must succeed."""
    result = call(*arguments)
    assert result.exit_code == 0, result.stderr
    return result


def refuse(*arguments: object) -> str:
    """Run a command that must be refused with one line on stderr and nothing on stdout; the line is returned."""
    result = call(*arguments)
    assert result.exit_code == 1, (result.stdout, result.stderr)
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1, result.stderr
    return result.stderr.rstrip("\n")
