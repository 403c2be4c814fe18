"""How does a report speak? Heads, numbers, shares and tokens as text for people."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

UNSEEN = ("C", "Z")  # control, format, unassigned; separators
LONGEST_TOKEN = 40


def head_name(head: int) -> str:
    return f"L0H{head}"


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def listed(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def token_shown(text: str) -> str:
    """A token for a page: a space as ␣, what can't be seen (or turns the text round) as an escape, cut when long."""
    shown = "".join(_visible(character) for character in text[:LONGEST_TOKEN])
    return shown if len(text) <= LONGEST_TOKEN else shown + "…"


def _visible(character: str) -> str:
    if character == " ":
        return "␣"
    if unicodedata.category(character)[0] in UNSEEN:
        return character.encode("unicode_escape").decode("ascii")
    return character
