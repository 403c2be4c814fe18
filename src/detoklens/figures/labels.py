"""Text in figures: axis labels, short numbers, and token text that is safe to draw.

Token text is untrusted. Control and invisible characters, combining marks and characters missing from the font are
escaped, a space is shown as ␣, and long tokens are truncated. Backslashes are kept: vocabularies write bytes as \\xNN.
Dollar signs are harmless because mathtext is off for token text (theme.py).
"""

from __future__ import annotations

import unicodedata
from functools import cache
from itertools import accumulate

from detoklens.figures import mpl
from detoklens.wording import exact_percent

KEY = "key (attended to)"
QUERY = "query (attends)"
KEY_POSITION = f"{KEY}, position"
QUERY_POSITION = f"{QUERY}, position"
OFFSET = "distance from the key (attended to) to its query"
COUNT = "occurrences in the corpus, plus one"

LONGEST_TOKEN = 16
_UNSEEN = ("C", "M", "Z")  # categories: control, format, unassigned; combining marks; separators


def band_name(things: str, share: float | None) -> str:
    """`95 % of tokens`, or `band of tokens` if the share is unknown."""
    return f"band of {things}" if share is None else f"{exact_percent(share)} of {things}"


def token_label(text: str | None, longest: int = LONGEST_TOKEN, space: str = "␣") -> str:
    """Escape and truncate a token for display."""
    if not text:
        return "–" if text is None else '""'
    pieces = [space if character == " " else _visible(character) for character in text[: longest + 1]]
    ends = list(accumulate(map(len, pieces)))
    if not ends or ends[-1] <= longest:
        return "".join(pieces)
    return "".join(piece for piece, end in zip(pieces, ends, strict=True) if end < longest) + "…"


def token_name(text: str | None, token_id: int, longest: int = LONGEST_TOKEN) -> str:
    """The token's label, or its id without a tokenizer."""
    return f"id {token_id}" if text is None else token_label(text, longest)


def number(value: float | None, digits: int = 2) -> str:
    """Round a number and write it with a true minus sign; undefined is a dash."""
    if value is None or value != value:
        return "–"
    return f"{value:.{digits}f}".replace("-", "−")


def short_number(value: float, _place: object = None) -> str:
    """Write a number in a few characters for ticks and ranges: 12k, −0.05, 2e−5."""
    size = abs(value)
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size >= unit * (10 if letter == "k" else 1):
            return f"{value / unit:.3g}{letter}".replace("-", "−")
    shown = f"{value:.4g}" if size >= 1e-3 or not size else f"{value:.2g}"
    return shown.replace("e-0", "e-").replace("-", "−")


def _visible(character: str) -> str:
    if unicodedata.category(character)[0] in _UNSEEN or character == "␣" or ord(character) not in _glyphs():
        return character.encode("unicode_escape").decode("ascii")
    return character


@cache
def text_inches(text: str, points: float) -> float:
    """Width of a line of text in the figures' font."""
    font = mpl.font_manager.FontProperties(family="DejaVu Sans", size=points)
    return mpl.textpath.TextToPath().get_text_width_height_descent(text, font, ismath=False)[0] / 72


@cache
def _glyphs() -> frozenset[int]:
    """Code points in the font, about 6,000 for DejaVu Sans."""
    return frozenset(mpl.font_manager.get_font(mpl.font_manager.findfont("DejaVu Sans")).get_charmap())
