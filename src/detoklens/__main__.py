"""`detoklens` and `python -m detoklens`: the command line. Ctrl-C ends it with one line, from the first import on."""

from __future__ import annotations

import resource
import sys

INTERRUPTED = 130  # the exit code that shells use
STOPPED = "Stopped; run the same command to continue."
LEAST_ADDRESS_SPACE = 3_500_000_000
"""Bytes that numpy, polars and their threads map on import; with less they raise, hang or abort."""
LIGHT = {"-h", "--help", "--version"}  # options that import neither


def main() -> None:
    """Import the command line and run it."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    is_limited = limit != resource.RLIM_INFINITY
    try:
        if is_limited and limit < LEAST_ADDRESS_SPACE and sys.argv[1:] and not LIGHT & set(sys.argv):
            sys.exit(_too_little(limit))
        from detoklens.cli.app import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write(f"\n{STOPPED}\n")
        sys.exit(INTERRUPTED)
    except ImportError as error:
        if not is_limited:
            raise
        sys.exit(f"{_too_little(limit)} ({error})")


def _too_little(limit: int) -> str:
    return (
        f"detoklens: the address space is limited to {limit / 1e9:.1f} GB, too little to load numpy and polars "
        f"({LEAST_ADDRESS_SPACE / 1e9:.1f} GB or more, depending on the number of cores); raise `ulimit -v`"
    )


if __name__ == "__main__":
    main()
