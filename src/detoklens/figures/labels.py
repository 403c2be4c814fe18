"""What do labels say? Words with the paper's symbol, heads as L0H7, and token text that can't do harm.

Tokens come from strangers: control and invisible characters, combining marks and characters that the font lacks are
shown as escapes, a space as ␣, and a long token is cut. A backslash stays as it is: vocabularies write bytes as \\xNN.
Dollar signs are harmless since mathtext is off (theme.py).
"""

from __future__ import annotations

import unicodedata
from functools import cache
from itertools import accumulate

from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.textpath import TextToPath

from detoklens.wording import exact_percent

KEY = "key (attended to)"
QUERY = "query (attends)"
KEY_POSITION = f"{KEY}, position"
QUERY_POSITION = f"{QUERY}, position"
OFFSET = "distance from the key (attended to) to its query"
COUNT = "occurrences in the corpus, plus one"

LONGEST_TOKEN = 16
_NAMED_ESCAPES = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
_UNSEEN = ("C", "M", "Z")  # categories: control, format, unassigned; combining marks; separators


def band_name(things: str, share: float | None) -> str:
    """`95 % of tokens`; where the share is not known, that it is a band of them."""
    return f"band of {things}" if share is None else f"{exact_percent(share)} of {things}"


def token_label(text: str | None, longest: int = LONGEST_TOKEN, space: str = "␣") -> str:
    """A token for eyes: nothing invisible, nothing that the font lacks, not too long."""
    if not text:
        return "–" if text is None else '""'
    pieces = [space if character == " " else _visible(character) for character in text[: longest + 1]]
    ends = list(accumulate(map(len, pieces)))
    if not ends or ends[-1] <= longest:
        return "".join(pieces)
    return "".join(piece for piece, end in zip(pieces, ends, strict=True) if end < longest) + "…"


def token_name(text: str | None, token_id: int, longest: int = LONGEST_TOKEN) -> str:
    """A token for eyes; by its id where no tokenizer says more."""
    return f"id {token_id}" if text is None else token_label(text, longest)


def number(value: float | None, digits: int = 2) -> str:
    """A rounded number with a true minus sign, a dash where it is undefined."""
    if value is None or value != value:
        return "–"
    return f"{value:.{digits}f}".replace("-", "−")


def short_number(value: float, _place: object = None) -> str:
    """A number of few characters for ticks and ranges: 12k, −0.05, 2e−5."""
    size = abs(value)
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size >= unit * (10 if letter == "k" else 1):
            return f"{value / unit:.3g}{letter}".replace("-", "−")
    shown = f"{value:.4g}" if size >= 1e-3 or not size else f"{value:.2g}"
    return shown.replace("e-0", "e-").replace("-", "−")


def _visible(character: str) -> str:
    if character in _NAMED_ESCAPES:
        return _NAMED_ESCAPES[character]
    if unicodedata.category(character)[0] in _UNSEEN or character == "␣" or ord(character) not in _glyphs():
        return character.encode("unicode_escape").decode("ascii")
    return character


@cache
def text_inches(text: str, points: float) -> float:
    """How wide a line of text is in the figures' font."""
    font = FontProperties(family="DejaVu Sans", size=points)
    return TextToPath().get_text_width_height_descent(text, font, ismath=False)[0] / 72


@cache
def _glyphs() -> frozenset[int]:
    """Code points that the font has, about 6,000 in DejaVu Sans."""
    return frozenset(get_font(findfont("DejaVu Sans")).get_charmap())
