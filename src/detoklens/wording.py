"""How heads, numbers, shares, tokens and terms are written in figures, summaries, tables and pages."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

DIGITS = 4  # significant digits of a number in a table
LARGE, HUGE = 10.0**DIGITS - 0.5, 1e15  # in between, a number has more digits than that, but no exponent
LONGEST_TOKEN = 40  # characters of a token on a page
SEAM = "·"  # between two adjacent tokens
_SIDES = {"e": "token", "p": "position"}  # the letters of a term's name
_UNSEEN = ("C", "Z")  # control, format, unassigned; separators


def head_name(head: int, layer: int = 0) -> str:
    return f"L{layer}H{head}"


def _is_term(name: str) -> bool:
    return 0 < len(name) <= 2 and set(name) <= _SIDES.keys()


def term_symbol(term: str) -> str:
    """`Tᵉᵖ` for `ep`; any other name unchanged. `scores.terms.TERMS` declares the terms."""
    return "T" + term.replace("e", "ᵉ").replace("p", "ᵖ") if _is_term(term) else term


def term_name(term: str) -> str:
    """A term in words, e.g. `token alone (Tᵉ)`; any other name unchanged."""
    if not _is_term(term):
        return term
    sides = [_SIDES[letter] for letter in term]
    return f"{' and '.join(sides) if len(sides) > 1 else f'{sides[0]} alone'} ({term_symbol(term)})"


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def exact_percent(share: float) -> str:
    """`97.5 %`, without rounding."""
    return f"{100 * share:g} %"


def estimate(value: float, low: float | None, high: float | None, digits: int = 2) -> str:
    """`0.85 [0.84, 0.86]`, or `0.85` if the interval is unknown."""
    ends = "" if low is None or high is None else f" [{low:.{digits}f}, {high:.{digits}f}]"
    return f"{value:.{digits}f}{ends}".replace("-", "−")


def p_value(p: float) -> str:
    """`p = 0.0017`, or `p < 0.0001`."""
    return f"p = {p:.2g}" if p >= 1e-4 else "p < 0.0001"


def signed(number: float) -> str:
    return f"{number:+.3f}".replace("-", "−")


def deviations(number: float, digits: int = 1) -> str:
    """`2.1 standard deviations above`."""
    return f"{abs(number):.{digits}f} standard deviations {'above' if number >= 0 else 'below'}"


def sentence(remark: str) -> str:
    """A remark with a capital letter and a full stop."""
    return remark[:1].upper() + remark[1:] + ("" if remark.endswith((".", "?", "!")) else ".")


def listed(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def listed_some(names: Sequence[str], most: int) -> str:
    """`a, b and 7 more`."""
    return listed(names if len(names) <= most else [*names[:most], f"{len(names) - most} more"])


def plural(number: int, thing: str) -> str:
    """`1 document`, `1,200 documents`."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def token_shown(text: str) -> str:
    """A token for display: a space as ␣, invisible characters escaped, truncated."""
    shown = "".join(_visible(character) for character in text[:LONGEST_TOKEN])
    return shown if len(text) <= LONGEST_TOKEN else shown + "…"


def pair_shown(key: str, query: str) -> str:
    """Two adjacent tokens: `␣mag·ic`."""
    return f"{token_shown(key)}{SEAM}{token_shown(query)}"


def _visible(character: str) -> str:
    if character == " ":
        return "␣"
    if unicodedata.category(character)[0] in _UNSEEN:
        return character.encode("unicode_escape").decode("ascii")
    return character


def cell(value: object) -> str:
    """A table value for display: rounded numbers, quoted and escaped text, a dash for null."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return rounded(value)
    if isinstance(value, str):
        return repr(value)
    return str(value)


def rounded(number: float) -> str:
    """Four significant digits; whole from 10,000 on, such as ranks: `11580`, not `1.158e+04`."""
    return f"{number:.{DIGITS}g}" if abs(number) < LARGE or abs(number) >= HUGE else f"{number:.0f}"


def column_cells(values: Sequence[object]) -> list[str]:
    """A column for display; text is quoted if it has outer spaces or control characters."""
    quoted = any(isinstance(value, str) and (value != value.strip() or not value.isprintable()) for value in values)
    return [value if isinstance(value, str) and not quoted else cell(value) for value in values]
