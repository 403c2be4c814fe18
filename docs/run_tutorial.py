"""Run the tutorial's commands and cells and update their outputs: `python docs/run_tutorial.py`.

A `console` block is a command and its output in an 80-column terminal. A `python` block followed by a `text` block
prints that text. All blocks of a page run in order, in one folder.
"""

from __future__ import annotations

import contextlib
import io
import os
import pty
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

TUTORIAL = Path(__file__).parent / "tutorial.md"
BLOCK = re.compile(r"```(console|python)\n(.*?)```\n(?:\n```text\n(.*?)```\n)?", re.DOTALL)
WIDE, HIGH = 80, 50
ONCE = "compiling loops, once for this machine"  # printed by the first command, whichever it is


def run(page: str) -> str:
    """Return the page with new outputs; everything runs in the current folder."""
    names: dict[str, Any] = {}
    runners: dict[str, Callable[[re.Match[str]], str]] = {"console": _console, "python": lambda b: _python(b, names)}
    return BLOCK.sub(lambda block: runners[block[1]](block), page)


def _console(block: re.Match[str]) -> str:
    command = block[2].split("\n")[0].removeprefix("$ ")
    return f"```console\n$ {command}\n{terminal(command)}```\n"


def _python(block: re.Match[str], names: dict[str, Any]) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
        exec(compile(block[2], "tutorial", "exec"), names)
    if block[3] is None:
        return block[0]
    return f"```python\n{block[2]}```\n\n```text\n{printed.getvalue()}```\n"


def terminal(command: str) -> str:
    """Return what a command prints in a terminal: answer and notes in order, without progress."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(WIDE), "LINES": str(HIGH), "NO_COLOR": "1", "TERM": "dumb"}
    words = command.replace("detoklens", f"{sys.executable} -m detoklens", 1)
    process = subprocess.Popen(words, shell=True, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    printed = _all_of(ours).replace("\r\n", "\n")
    if process.wait():
        raise SystemExit(f"{command}: {printed}")
    text = "\n".join(line.rstrip() for line in printed.split("\n") if ONCE not in line).strip("\n")
    return f"{text}\n" if text else ""


def _all_of(terminal_end: int) -> str:
    """Read until the other end closes, which a terminal signals with an error."""
    parts: list[bytes] = []
    with contextlib.suppress(OSError):
        while part := os.read(terminal_end, 65536):
            parts.append(part)
    os.close(terminal_end)
    return b"".join(parts).decode()


def main() -> None:
    page = TUTORIAL.read_text(encoding="utf-8")
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            page = run(page)
        finally:
            os.chdir(before)
    TUTORIAL.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
