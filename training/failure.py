"""How does the recipe say that it cannot go on? In one line on stderr, exit code 1."""

from __future__ import annotations

import sys
from collections.abc import Callable


class RecipeError(Exception):
    """What was asked, what was found, what to do: one line."""


def run_as_command(main: Callable[[], None]) -> None:
    """Run a step of the recipe; a RecipeError becomes one line, anything else keeps its traceback."""
    try:
        main()
    except RecipeError as problem:
        print(f"error: {problem}", file=sys.stderr)
        sys.exit(1)
