"""How a command ends that can't do what was asked: one line on stderr, whatever state the streams are in."""

from __future__ import annotations

import codecs
import errno
import io
import os
import sys

from detoklens.errors import DetokLensError, MissingError, OutputError, first_line

LONGEST_SHOWN = 200  # characters of a path in a message
UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EBADF})
"""What the system says of a file, without its name, when it takes no more: full, too large, broken, read-only."""

LESS = "lower what this command has of --heads, --tokens, --documents, --top, --workers, --batch or --memory"

NEEDED = {
    "counts": "add --counts COUNTS (made by `detoklens count`)",
    "text": "add --text with files, folders, globs or a hub dataset",
    "vocabulary": "put the model's tokenizer.json next to its weights",
}
AS_FLAGS = {
    "by skip_bad=True": "by --skip-bad",
    "set document_per_line=True": "add --document-per-line",
    "by text_field": "by --text-field",
}


def open_streams() -> None:
    """Refuse a closed stdout, do without a closed stderr, and let stdout take every character."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stdout is None:
        raise OutputError("stdout is closed and can't take the answer; redirect it, for example > /dev/null")
    if isinstance(sys.stdout, io.TextIOWrapper):
        codecs.register_error("detoklens", _escaped)
        sys.stdout.reconfigure(errors="detoklens")


def _escaped(error: UnicodeError) -> tuple[str | bytes, int]:
    """The bytes of a path that is no UTF-8; a backslash escape for a character that stdout's encoding lacks."""
    try:
        return codecs.lookup_error("surrogateescape")(error)
    except UnicodeError:
        return codecs.lookup_error("backslashreplace")(error)


def one_line(error: Exception) -> str | None:
    """What the user can mend in one line; nothing where a pipe was closed, None where the error is a bug."""
    if isinstance(error, DetokLensError):
        return f"detoklens: {in_flags(error)}\n"
    if isinstance(error, MemoryError):
        return f"detoklens: there is not enough memory ({first_line(error)}); {LESS}\n"
    if isinstance(error, BrokenPipeError):
        return ""
    if not isinstance(error, OSError):
        return None
    if error.filename is not None:
        return f"detoklens: {_shown(error.filename)}: {error.strerror}; name another file or folder\n"
    if error.errno in UNWRITABLE:
        return f"detoklens: the output can't be written: {error.strerror}; send it where there is room for it\n"
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
    """What stdout did not take is not offered to it once more when the interpreter ends."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _shown(path: object) -> str:
    """A path in a message, shortened where it is a screen long."""
    text = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else str(path)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"
