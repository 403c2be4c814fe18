"""`detoklens` and `python -m detoklens`: the command line. Ctrl-C ends it with one line, from the first import on."""

from __future__ import annotations

import sys

from detoklens.errors import too_little_address_space

INTERRUPTED = 130  # the exit code that shells use for Ctrl-C
STOPPED = "Stopped; run the same command to continue."
LIGHT = {"-h", "--help", "--version"}  # options that import neither


def main() -> None:
    """Import the command line and run it."""
    too_little = too_little_address_space()
    try:
        if too_little and sys.argv[1:] and not LIGHT & set(sys.argv):
            sys.exit(f"detoklens: {too_little}")
        from detoklens.cli.app import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write(f"\n{STOPPED}\n")
        sys.exit(INTERRUPTED)
    except ImportError as error:
        if not too_little:
            raise
        sys.exit(f"detoklens: {too_little} ({error})")


if __name__ == "__main__":
    main()
