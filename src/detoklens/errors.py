"""Errors that the user can fix: one line that says what was found and what to do.

On the command line a DetokLensError is that line and exit code 1; anything else keeps its traceback. Messages quote
names and values from untrusted files, so control characters are escaped and long messages are cut in the middle.
"""

from __future__ import annotations

import json
import os
import resource
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from reprlib import Repr
from typing import Any

LONGEST_MESSAGE = 1_000  # characters: a dozen lines of a terminal
LONGEST_VALUE = 200  # of one name or value in it
CUT = " … "


class DetokLensError(Exception):
    """An error that the user can fix; the message is one line that says how."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


class CheckpointError(DetokLensError):
    """The checkpoint can't be read or contradicts itself."""


class HubError(DetokLensError):
    """The hub can't be reached, or its answer is invalid."""


class UnsupportedModelError(DetokLensError):
    """The checkpoint is valid, but its computation is not supported exactly."""


class TokenError(DetokLensError):
    """A token, text or token id does not fit the vocabulary."""


class RangeError(DetokLensError):
    """A head, position or other argument is out of range."""


class CorpusError(DetokLensError):
    """A text input can't be read."""


class CountsError(DetokLensError):
    """Corpus counts are missing, damaged, or belong to another tokenizer."""


class OutputError(DetokLensError):
    """An output can't be written or read back."""


class MissingExtraError(DetokLensError):
    """An optional dependency is not installed."""


@dataclass(frozen=True)
class Input:
    """An input that a question can need: what it is, and how to add it in Python, on the command line, to a report."""

    name: str
    python: str = ""
    option: str = ""
    report: str = ""


INPUTS = {
    "vocabulary": Input(
        "a tokenizer",
        "study(model, tokenizer=…) with its tokenizer, or the path of a tokenizer.json",
        "put the model's tokenizer.json next to its weights",
        "needs a tokenizer",
    ),
    "counts": Input(
        "corpus counts",
        'study(model, counts="FOLDER") with a folder made by `detoklens count`',
        "add --counts COUNTS (made by `detoklens count`)",
        "needs --counts or --corpus",
    ),
    "text": Input(
        "text",
        'study(model, text=["…"]) with a list of texts, or text="texts/*.txt"',
        "add --text with files, folders, globs or a hub dataset",
        "needs --text",
    ),
    "position_table": Input(
        "learned position embeddings, which rotary and ALiBi models don't have; Frequency measures the variance of "
        "their token embeddings",
        report="the model has no position embeddings",
    ),
    "causal": Input(
        "causal attention, and this model is bidirectional",
        report="the model is bidirectional",
    ),
}


class MissingError(DetokLensError):
    """A question needs an input that the study lacks: `counts`, `text` or a `vocabulary`."""

    def __init__(self, need: str, what: str) -> None:
        hint = INPUTS[need].python if need in INPUTS else ""
        super().__init__(f"{what}: {hint}" if hint else what)
        self.need, self.what = need, what


ON_FILES = {
    "config.json and weights don't belong together": "config and weights don't belong together",
    "config.json": "the model's config",
    "; download it again": "",
    ", download the checkpoint again": "",
    "the checkpoint is damaged": "check how the weights were made",
    "convert the checkpoint to one of them": "convert the model, e.g. with model.float()",
    "pass the whole checkpoint": "pass the whole model",
    "pass the checkpoint as safetensors": "pass the whole model",
    "save that part as a checkpoint": "pass that part, e.g. model.language_model",
}
"""Advice about files, and the same advice for a model in memory."""


@contextmanager
def errors_in_memory(in_memory: bool) -> Iterator[None]:
    """If the model is in memory, replace an error's advice about files."""
    try:
        yield
    except DetokLensError as error:
        if in_memory:
            for on_files, in_memory_advice in ON_FILES.items():
                error.args = (str(error).replace(on_files, in_memory_advice),)
        raise


LEAST_ADDRESS_SPACE = 3_500_000_000
"""Bytes that numpy, polars and their threads map on import; with less they raise, hang, abort or misread files."""


def too_little_address_space() -> str | None:
    """What to do about an address space too small to load numpy and polars; None if it is large enough."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY or limit >= LEAST_ADDRESS_SPACE:
        return None
    return (
        f"the address space is limited to {limit / 1e9:.1f} GB, too little to load numpy and polars "
        f"({LEAST_ADDRESS_SPACE / 1e9:.1f} GB or more, depending on the number of cores); raise `ulimit -v`"
    )


def as_path(given: object, what: str) -> Path:
    """A path from a string or path; an error for anything else."""
    if not isinstance(given, str | os.PathLike):
        raise RangeError(f"{what} is a string or a pathlib.Path, not {shown(given)}")
    return Path(given)


def parse_json(text: str | bytes) -> dict[str, Any]:
    """Parse a JSON object; raise ValueError for anything else, for duplicate names and for deep nesting.

    Python keeps the last of two equal names, but one flipped bit turns the tensor name `h.1.` into a second `h.0.`.
    """
    try:
        found = json.loads(text, object_pairs_hook=_without_doubles)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(found, dict):
        raise ValueError(f"{shown(found)} is not an object")
    return found


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"the name {shown(twice)} occurs twice in one object")
    return found


def one_line(text: str) -> str:
    """A text as one line of bounded length without control characters."""
    return _cut(escape_unprintable(_cut(text, LONGEST_MESSAGE)), LONGEST_MESSAGE)


def shown(value: object) -> str:
    """A value from an untrusted file for a message: its repr, abbreviated."""
    return _cut(_SHORT.repr(value), LONGEST_VALUE)


def printable(path: str) -> str:
    """A path as encodable text: bytes that are not UTF-8 are escaped."""
    return path.encode("utf-8", "backslashreplace").decode("utf-8")


def first_line(error: BaseException) -> str:
    """The first line of a library's error message; the error's type if it is empty."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def _cut(text: str, longest: int) -> str:
    """Shorten a long message in the middle: it starts with what was found and ends with what to do."""
    if len(text) <= longest:
        return text
    end = longest // 4
    return text[: longest - end - len(CUT)] + CUT + text[-end:]


def escape_unprintable(text: str) -> str:
    """Escape control characters and characters that change the text direction."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


_SHORT = Repr()
_SHORT.maxlevel = 3
_SHORT.maxstring = _SHORT.maxlong = _SHORT.maxother = LONGEST_VALUE // 2
