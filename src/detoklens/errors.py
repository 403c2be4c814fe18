"""What can go wrong that is not a bug: one line that says what was found and what to do.

On the command line a DetokLensError is that one line and exit code 1; anything else keeps its traceback. Messages quote
names and values of strangers' files, so here, for all of them, what a terminal would obey is written out and what is
longer than a screen is cut in its middle.
"""

from __future__ import annotations

import os
from pathlib import Path
from reprlib import Repr

LONGEST_MESSAGE = 1_000  # characters: a dozen lines of a terminal
LONGEST_VALUE = 200  # of one name or value in it
CUT = " … "


class DetokLensError(Exception):
    """Something the user can mend; the message is one line that says how."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


class CheckpointError(DetokLensError):
    """The checkpoint can't be read, or holds something else than it claims."""


class HubError(DetokLensError):
    """The hub can't be reached, or what it answers can't be believed."""


class UnsupportedModelError(DetokLensError):
    """The checkpoint is fine, but its computation is not one that is handled exactly."""


class TokenError(DetokLensError):
    """A token, text or token id does not fit the vocabulary."""


class RangeError(DetokLensError):
    """A head, position or other index lies outside what the model has."""


class CorpusError(DetokLensError):
    """A text input can't be read as asked."""


class CountsError(DetokLensError):
    """Corpus counts are missing, damaged, or belong to another tokenizer."""


class OutputError(DetokLensError):
    """The answer can't be written where it was asked to go."""


class MissingExtraError(DetokLensError):
    """An optional part of the package is needed and not installed."""


class MissingError(DetokLensError):
    """A question needs something that the study does not have: `counts`, `text` or a `vocabulary`."""

    def __init__(self, need: str, what: str) -> None:
        hints = {
            "counts": 'study(model, counts="FOLDER") with a folder made by `detoklens count`',
            "text": 'study(model, text="texts/*.txt"), or a list of texts',
            "vocabulary": "put the model's tokenizer.json beside its weights",
        }
        super().__init__(f"{what}: {hints[need]}" if need in hints else what)
        self.need, self.what = need, what


def as_path(given: object, what: str) -> Path:
    """A path as people give it; one line about anything else."""
    if not isinstance(given, str | os.PathLike):
        raise RangeError(f"{what} is a path, given as text or by pathlib.Path, not {shown(given)}")
    return Path(given)


def one_line(text: str) -> str:
    """A text as one line of bounded length, in which nothing can move the cursor, colour the screen or end the line."""
    return _cut(escape_unprintable(_cut(text, LONGEST_MESSAGE)), LONGEST_MESSAGE)


def shown(value: object) -> str:
    """A value of a stranger's file as a message quotes it: as Python writes it, in short where it is large or deep."""
    return _cut(_SHORT.repr(value), LONGEST_VALUE)


def printable(path: str) -> str:
    """A path as text that can be encoded: bytes of it that are no UTF-8 come as lone surrogates, and are escaped."""
    return path.encode("utf-8", "backslashreplace").decode("utf-8")


def first_line(error: BaseException) -> str:
    """What a library says of an error, as far as it fits into one line of ours; its kind where it says nothing."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def _cut(text: str, longest: int) -> str:
    """What is too long without its middle: a message begins with what was found and ends with what to do."""
    if len(text) <= longest:
        return text
    end = longest // 4
    return text[: longest - end - len(CUT)] + CUT + text[-end:]


def escape_unprintable(text: str) -> str:
    """A text with an escape for each character that a terminal would obey, or that turns the text around."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


_SHORT = Repr()
_SHORT.maxlevel = 3
_SHORT.maxstring = _SHORT.maxlong = _SHORT.maxother = LONGEST_VALUE // 2
