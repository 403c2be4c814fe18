"""Runs the command line in this process: quick, and with the exit code, stdout and stderr that a shell would see."""

from __future__ import annotations

import contextlib
import io
import sys
from dataclasses import dataclass
from unittest.mock import patch


@dataclass(frozen=True)
class Done:
    code: int
    stdout: str
    stderr: str


def run(*arguments: object) -> Done:
    """`detoklens ARGUMENTS…`; an exception that is no DetokLensError comes through as the bug it is."""
    from detoklens.cli.app import main

    stdout, stderr = io.StringIO(), io.StringIO()
    code = 0
    with (
        patch.object(sys, "argv", ["detoklens", *map(str, arguments)]),
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
    ):
        try:
            main()
        except SystemExit as exit_:
            code = exit_.code if isinstance(exit_.code, int) else int(exit_.code is not None)
    return Done(code, stdout.getvalue(), stderr.getvalue())


def refused(*arguments: object) -> str:
    """The one line on stderr of a command that must fail with exit code 1 and print nothing."""
    done = run(*arguments)
    assert done.code == 1, done
    assert done.stdout == "", done
    lines = done.stderr.strip().splitlines()
    assert lines, done
    assert lines[-1].startswith("detoklens: "), done
    return lines[-1].removeprefix("detoklens: ")
