"""How do we write heads, numbers, shares, tokens and terms? One wording for figures, sentences, tables and pages."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

DIGITS = 4  # significant digits of a number in a table
LONGEST_TOKEN = 40  # characters of a token on a page
SEAM = "·"  # between two tokens that are read as one text
_SIDES = {"e": "token", "p": "position"}  # the letters of a term's name
_UNSEEN = ("C", "Z")  # control, format, unassigned; separators


def head_name(head: int, layer: int = 0) -> str:
    return f"L{layer}H{head}"


def term_symbol(term: str) -> str:
    """`Tᵉᵖ` for `ep`."""
    return "T" + term.replace("e", "ᵉ").replace("p", "ᵖ")


def _spelled_out(term: str) -> str:
    sides = [_SIDES[letter] for letter in term]
    return f"{' and '.join(sides) if len(sides) > 1 else f'{sides[0]} alone'} ({term_symbol(term)})"


TERMS = {term: _spelled_out(term) for term in ("ee", "pp", "e", "p", "ep", "pe")}
"""The terms in words, in the order of legends; `scores.terms.TERMS` declares what they are."""


def term_name(term: str) -> str:
    """A term in words, e.g. `token alone (Tᵉ)`; any other name unchanged."""
    return TERMS.get(term, term)


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def exact_percent(share: float) -> str:
    """`97.5 %`: a share that somebody chose."""
    return f"{100 * share:g} %"


def signed(number: float) -> str:
    return f"{number:+.3f}".replace("-", "−")


def deviations(number: float, digits: int = 1) -> str:
    """How far something lies from a mean, in standard deviations, and on which side."""
    return f"{abs(number):.{digits}f} standard deviations {'above' if number >= 0 else 'below'}"


def sentence(remark: str) -> str:
    """A remark with a capital letter and a stop."""
    return remark[:1].upper() + remark[1:] + ("" if remark.endswith((".", "?", "!")) else ".")


def listed(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def listed_some(names: Sequence[str], most: int) -> str:
    """The same of the first ones only: `a, b and 7 more`."""
    return listed(names if len(names) <= most else [*names[:most], f"{len(names) - most} more"])


def plural(number: int, thing: str) -> str:
    """`1 document`, `1,200 documents`."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def token_shown(text: str) -> str:
    """A token for a page: a space as ␣, what can't be seen (or turns the text round) as an escape, cut when long."""
    shown = "".join(_visible(character) for character in text[:LONGEST_TOKEN])
    return shown if len(text) <= LONGEST_TOKEN else shown + "…"


def pair_shown(key: str, query: str) -> str:
    """Two tokens that stand together, with their seam: `␣mag·ic`."""
    return f"{token_shown(key)}{SEAM}{token_shown(query)}"


def _visible(character: str) -> str:
    if character == " ":
        return "␣"
    if unicodedata.category(character)[0] in _UNSEEN:
        return character.encode("unicode_escape").decode("ascii")
    return character


def cell(value: object) -> str:
    """A value of a table for eyes: rounded numbers, text in quotes with control characters escaped, a dash for null."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.{DIGITS}g}"
    if isinstance(value, str):
        return repr(value)
    return str(value)


def column_cells(values: Sequence[object]) -> list[str]:
    """One column for eyes; text is quoted where a space at its end or a control character would not be seen."""
    quoted = any(isinstance(value, str) and (value != value.strip() or not value.isprintable()) for value in values)
    return [value if isinstance(value, str) and not quoted else cell(value) for value in values]
