"""`detoklens` and `python -m detoklens`: the command line. Ctrl-C ends it without a word, from its first import on."""

from __future__ import annotations

import sys

INTERRUPTED = 130  # as shells say it


def main() -> None:
    """Import the command line and run it."""
    try:
        from detoklens.cli.app import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
