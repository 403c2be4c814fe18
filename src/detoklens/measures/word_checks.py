"""Is a text a word? By a list, or by what the library wordfreq knows."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable
from importlib.util import find_spec

from detoklens.errors import DetokLensError

WordCheck = Callable[[str], bool]

ONE_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")


def in_list(words: Iterable[str]) -> WordCheck:
    """Is it one of these words? Case and the space in front are ignored."""
    known = {word.casefold() for word in words}
    return lambda text: text.removeprefix(" ").casefold() in known


def has_wordfreq() -> bool:
    """Is the library installed? Asked in this one place."""
    return find_spec("wordfreq") is not None


def known_to_wordfreq(language: str = "en") -> WordCheck | None:
    """Does the library wordfreq know it as one word of the language? None where wordfreq is not installed."""
    if not has_wordfreq():
        return None
    zipf_frequency = importlib.import_module("wordfreq").zipf_frequency
    try:
        zipf_frequency("a", language)
    except (LookupError, ValueError) as error:
        raise DetokLensError(f"wordfreq has no words of the language {language!r}; name another, such as en") from error

    def check(text: str) -> bool:
        word = text.removeprefix(" ")
        return bool(ONE_WORD.fullmatch(word)) and zipf_frequency(word, language) > 0

    return check
