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
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TextIO
from unittest.mock import patch

TUTORIAL = Path(__file__).parent / "tutorial.md"
BLOCK = re.compile(r"```(console|python)\n(.*?)```\n(?:\n```text\n(.*?)```\n)?", re.DOTALL)
WIDE, HIGH = 80, 50
ONCE = "compiling the loops of this command, once"


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
    """What a shell command prints in a terminal, answer and notes in their order, without progress.

    `detoklens` runs in this process: starting Python takes longer than most commands.
    """
    ours, theirs = pty.openpty()
    with ThreadPoolExecutor() as reading, open(theirs, "w", encoding="utf-8") as screen:
        printed = reading.submit(_all_of, ours)
        try:
            failed = _detoklens(command, screen) if command.startswith("detoklens ") else _shell(command, screen)
        finally:
            screen.close()
    text = printed.result().replace("\r\n", "\n")
    if failed:
        raise SystemExit(f"{command}: {text}")
    lines = (line.rstrip() for line in text.split("\n") if ONCE not in line)
    return f"{shown}\n" if (shown := "\n".join(lines).strip("\n")) else ""


def _shell(command: str, screen: TextIO) -> bool:
    return subprocess.run(command, shell=True, stdout=screen, stderr=screen).returncode != 0


def _detoklens(command: str, screen: TextIO) -> bool:
    from detoklens.__main__ import main as detoklens_main

    settings = {"COLUMNS": str(WIDE), "LINES": str(HIGH), "NO_COLOR": "1", "TERM": "dumb"}
    with (
        patch.dict(os.environ, settings),
        patch.object(sys, "argv", shlex.split(command)),
        contextlib.redirect_stdout(screen),
        contextlib.redirect_stderr(screen),
    ):
        try:
            detoklens_main()
        except SystemExit as end:
            return bool(end.code)
    return False


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
