"""Errors of the training scripts: one line on stderr, exit code 1."""

from __future__ import annotations

import sys
from collections.abc import Callable


class RecipeError(Exception):
    """One line: what was found, what is accepted, what to do."""


def run_as_command(main: Callable[[], None]) -> None:
    """Run a script's `main`; a RecipeError prints one line, anything else keeps its traceback."""
    try:
        main()
    except RecipeError as problem:
        print(f"error: {problem}", file=sys.stderr)
        sys.exit(1)
