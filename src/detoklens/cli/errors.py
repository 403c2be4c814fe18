"""Errors of the command line: one line on stderr, in any state of the streams."""

from __future__ import annotations

import codecs
import errno
import io
import os
import sys

from detoklens.errors import DetokLensError, MissingError, OutputError, first_line

LONGEST_SHOWN = 200  # characters of a path in a message
UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EBADF})
"""Errors of writing to stdout, which come without a file name: full, too large, broken, read-only."""

LESS = "lower --heads, --tokens, --documents, --top, --workers, --batch or --memory, whichever the command has"

NEEDED = {
    "counts": "add --counts COUNTS (made by `detoklens count`)",
    "text": "add --text with files, folders, globs or a hub dataset",
    "vocabulary": "put the model's tokenizer.json next to its weights",
}
AS_FLAGS = {
    "with skip_bad=True": "with --skip-bad",
    "set document_per_line=True": "add --document-per-line",
    "pass text_field=": "pass --text-field ",
    "as ids_field": "as --ids-field",
    "pass dtype=": "pass --dtype ",
    "omit dtype": "omit --dtype",
    "pass its tokenizer, load(model, tokenizer=…)": "put its tokenizer.json next to the weights",
}


def open_streams() -> None:
    """Refuse a closed stdout, replace a closed stderr, and let stdout print every character."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stdout is None:
        raise OutputError("stdout is closed; redirect it, e.g. > /dev/null")
    if isinstance(sys.stdout, io.TextIOWrapper):
        codecs.register_error("detoklens", _escaped)
        sys.stdout.reconfigure(errors="detoklens")


def _escaped(error: UnicodeError) -> tuple[str | bytes, int]:
    """The bytes of a path that is not UTF-8; a backslash escape for a character that stdout's encoding lacks."""
    try:
        return codecs.lookup_error("surrogateescape")(error)
    except UnicodeError:
        return codecs.lookup_error("backslashreplace")(error)


def one_line(error: Exception) -> str | None:
    """The message of an error that the user can fix; empty for a closed pipe, None for a bug."""
    if isinstance(error, DetokLensError):
        return f"detoklens: {in_flags(error)}\n"
    if isinstance(error, MemoryError):
        return f"detoklens: not enough memory ({first_line(error)}); {LESS}\n"
    if isinstance(error, BrokenPipeError):
        return ""
    if not isinstance(error, OSError):
        return None
    if error.filename is not None:
        return f"detoklens: {_shown(error.filename)}: {error.strerror}; name another file or folder\n"
    if error.errno in UNWRITABLE:
        return f"detoklens: the output can't be written: {error.strerror}; redirect it elsewhere\n"
    return None


def in_flags(error: DetokLensError) -> str:
    """An error message that names command-line options in place of Python parameters."""
    if isinstance(error, MissingError) and error.need in NEEDED:
        return f"{error.what}; {NEEDED[error.need]}"
    said = str(error)
    for keyword, flag in AS_FLAGS.items():
        said = said.replace(keyword, flag)
    return said


def forget_unwritten() -> None:
    """Discard unwritten output, so that the interpreter does not fail on it again at exit."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _shown(path: object) -> str:
    """A path for a message, truncated."""
    text = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else str(path)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"
