"""What the regex of a tokenizer looks at: which characters next to each other, and which ones it matches alone.

The regex is read in Oniguruma's syntax and, if possible, translated for Python's `re`: once character classes are
written out, it means the same to every library. A character whose properties differ between versions of Unicode may or
may not be in a class. Anything that is not understood raises `Unanalysed`.
"""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
from jaxtyping import Bool

ByteTable = Bool[np.ndarray, "256 256"]

UNICODE = 0x110000
ASCII = 0x80
KNOWN = 0x2070
"""The characters whose classes are written out: Latin to Cyrillic and beyond, and general punctuation."""
PIECE_END, WORD_END = "\0", "\1"
"""Separators in a row of words. Words that have them are not split; no class of a translated regex has them."""


class Unanalysed(Exception):
    """A part of a tokenizer for which no exact cut is known."""


@dataclass(frozen=True)
class RegexAnalysis:
    """What is known about a regex."""

    looked_at: ByteTable
    """The bytes that one match, or a lookahead of it, may look at together."""
    unmatched: CharacterSet
    """The characters that may not match."""
    translated: str | None
    """The same regex for Python's `re` on words that end with a separator; None if it isn't sure to be the same."""
    unclear: Bool[np.ndarray, "known"]
    """The known characters that one of its classes may or may not have."""
    firsts: Bool[np.ndarray, "256"]
    """First bytes of all characters that its classes may have."""

    def pairs(self) -> tuple[ByteTable, ByteTable]:
        """The pairs of bytes that it looks at together, and those of text between matches."""
        return self.looked_at, np.outer(self.unmatched.lasts, self.unmatched.firsts)


@cache
def analyse(pattern: str) -> RegexAnalysis:
    parser = _Parser(pattern)
    whole = parser.alternatives()
    if parser.rest():
        raise Unanalysed(f"an unexpected {parser.rest()[0]!r}")
    if whole.is_nullable:
        raise Unanalysed("a match of nothing")
    looked_at = np.zeros((256, 256), bool)
    for before, after in parser.adjacent:
        looked_at |= np.outer(parser.atoms[before].lasts, parser.atoms[after].firsts)
    return RegexAnalysis(
        looked_at,
        unmatched=~CharacterSet(whole.alone, whole.alone, NO_BYTE, NO_BYTE),
        translated=whole.translated if parser.is_translated else None,
        unclear=np.any([atom.possible != atom.certain for atom in parser.atoms], axis=0),
        firsts=np.any([atom.firsts for atom in parser.atoms], axis=0),
    )


@dataclass(frozen=True)
class CharacterSet:
    """The known characters that are in a set for certain, those that may be, and the bytes that any may start and end
    with."""

    certain: Bool[np.ndarray, "known"]
    possible: Bool[np.ndarray, "known"]
    firsts: Bool[np.ndarray, "256"]
    lasts: Bool[np.ndarray, "256"]

    @classmethod
    def of(cls, sure: Sequence[int] | np.ndarray, doubtful: Sequence[int] | np.ndarray = ()) -> CharacterSet:
        """The set of these characters, and perhaps of some others."""
        codes = np.concatenate([sure, doubtful]).astype(np.int64)
        possible = np.isin(np.arange(KNOWN), codes)
        sizes = [codes < 0x80, codes < 0x800, codes < 0x10000]
        firsts = np.select(sizes, [codes, 0xC0 | codes >> 6, 0xE0 | codes >> 12], 0xF0 | codes >> 18)
        lasts = np.where(codes < ASCII, codes, 0x80 | codes & 0x3F)
        return cls(
            possible & ~np.isin(np.arange(KNOWN), doubtful),
            possible,
            np.bincount(firsts, minlength=256) > 0,
            np.bincount(lasts, minlength=256) > 0,
        )

    def __invert__(self) -> CharacterSet:
        others = np.concatenate([~self.certain[:ASCII], np.ones(ASCII, bool)])
        return CharacterSet(~self.possible, ~self.certain, others, others)

    def __or__(self, other: CharacterSet) -> CharacterSet:
        return CharacterSet(
            self.certain | other.certain,
            self.possible | other.possible,
            self.firsts | other.firsts,
            self.lasts | other.lasts,
        )

    @property
    def translated(self) -> str:
        """The certain characters as a class of Python's `re`."""
        codes = np.flatnonzero(self.certain)
        codes = codes[codes > ord(WORD_END)]
        runs = np.split(codes, np.flatnonzero(np.diff(codes) > 1) + 1)
        ranges = (f"\\u{run[0]:04x}-\\u{run[-1]:04x}" for run in runs if len(run))
        return f"[{''.join(ranges)}]" if len(codes) else "(?!)"


NO_BYTE = np.zeros(256, bool)
NONE = np.zeros(KNOWN, bool)
ALL = ~CharacterSet(NONE, NONE, NO_BYTE, NO_BYTE)
BEYOND_ASCII = np.arange(ASCII, UNICODE)


@cache
def _categories() -> np.ndarray:
    """The Unicode category of each character, as the bytes of its two letters."""
    return np.frombuffer("".join(map(unicodedata.category, map(chr, range(UNICODE)))).encode(), "S2")


@cache
def _unstable() -> np.ndarray:
    """The characters whose category is not the same in Unicode 3.2 and in Python's version."""
    old = np.frombuffer("".join(map(unicodedata.ucd_3_2_0.category, map(chr, range(UNICODE)))).encode(), "S2")
    return np.flatnonzero((_categories() == b"Cn") | (_categories() != old))


@cache
def _property(name: str) -> CharacterSet:
    r"""The characters of `\p{name}`; one whose category has changed since Unicode 3.2 may have any property."""
    wanted = [category for category in np.unique(_categories()) if category.startswith(name.encode())]
    if not wanted or not name:
        raise Unanalysed(f"the property {name}")
    return CharacterSet.of(np.flatnonzero(np.isin(_categories(), wanted)), _unstable())


@cache
def _like_ascii() -> np.ndarray:
    """The characters beyond ASCII that may equal ASCII ones if case is ignored."""
    forms = ((chr(code), chr(code).lower() + chr(code).upper() + chr(code).casefold()) for code in BEYOND_ASCII)
    return np.array([ord(character) for character, others in forms if any(map(str.isascii, others))])


@cache
def _class(letter: str) -> CharacterSet:
    r"""The characters of `\s`, `\d` or `\w`."""
    if letter == "d":
        return _property("Nd")
    if letter == "w":
        return CharacterSet.of(
            [ord(character) for character in string.ascii_letters + string.digits + "_"], BEYOND_ASCII
        )
    spaces = [code for code in range(UNICODE) if chr(code).isspace()]
    return CharacterSet.of(spaces, [0x1C, 0x1D, 0x1E, 0x1F, 0x85, 0x180E, 0x200B])


@dataclass(frozen=True)
class Node:
    """A part of a regex: the atoms that can be looked at first and matched last, and what it matches for certain."""

    first: frozenset[int] = frozenset()
    last: frozenset[int] = frozenset()
    is_nullable: bool = True
    alone: Bool[np.ndarray, "known"] = field(default_factory=lambda: NONE)
    """Characters that it matches alone, regardless of what follows."""
    skips_before: bool = True
    """Whether it can match nothing, regardless of what follows, and let the next part match instead."""
    skips_after: bool = True
    """Whether it matches something or nothing, regardless of what follows."""
    translated: str = ""
    """The same in the syntax of Python's `re`."""


class _Parser:
    """Reads a regex in Oniguruma's syntax and collects its atoms (sets of characters) and which may be adjacent."""

    def __init__(self, pattern: str) -> None:
        self._pattern, self._place = pattern, 0
        self._ignores_case = False
        self.atoms: list[CharacterSet] = []
        self.adjacent: set[tuple[int, int]] = set()
        self.is_translated = True

    def rest(self) -> str:
        return self._pattern[self._place :]

    def _take(self, text: str) -> bool:
        """Move on if the pattern continues with this text."""
        found = self._pattern.startswith(text, self._place)
        self._place += len(text) * found
        return found

    def _next(self) -> str:
        if not self.rest():
            raise Unanalysed("the pattern breaks off")
        self._place += 1
        return self._pattern[self._place - 1]

    def _until(self, end: str) -> str:
        text, found, _ = self.rest().partition(end)
        if not found:
            raise Unanalysed(f"no {end}")
        self._place += len(text) + 1
        return text

    def alternatives(self) -> Node:
        branches = [self._sequence()]
        while self._take("|"):
            branches.append(self._sequence())
        return Node(
            first=frozenset().union(*(branch.first for branch in branches)),
            last=frozenset().union(*(branch.last for branch in branches)),
            is_nullable=any(branch.is_nullable for branch in branches),
            alone=np.any([branch.alone for branch in branches], axis=0),
            skips_before=any(branch.skips_before for branch in branches),
            skips_after=any(branch.skips_after for branch in branches),
            translated="|".join(branch.translated for branch in branches),
        )

    def _sequence(self) -> Node:
        whole = Node()
        while self.rest() and self.rest()[0] not in "|)":
            part = self._quantified()
            self.adjacent.update((before, after) for before in whole.last for after in part.first)
            whole = Node(
                first=whole.first | part.first if whole.is_nullable else whole.first,
                last=whole.last | part.last if part.is_nullable else part.last,
                is_nullable=whole.is_nullable and part.is_nullable,
                alone=(whole.alone & part.skips_after) | (part.alone & whole.skips_before),
                skips_before=whole.skips_before and part.skips_before,
                skips_after=whole.skips_after and part.skips_after,
                translated=whole.translated + part.translated,
            )
        return whole

    def _quantified(self) -> Node:
        part, begin = self._single(), self._place
        while (bounds := self._bounds()) is not None:
            least, most, is_possessive = bounds
            quantifier, begin = self._pattern[begin : self._place], self._place
            self.is_translated &= not part.is_nullable  # libraries end a loop over nothing in different ways
            if most > 1:
                self.adjacent.update((before, after) for before in part.last for after in part.first)
            part = Node(
                part.first,
                part.last,
                is_nullable=least == 0 or part.is_nullable,
                alone=part.alone & (least <= 1),
                skips_before=(least == 0 or part.skips_before) and not is_possessive,
                skips_after=least == 0 or part.skips_after,
                translated=f"(?:{part.translated}){quantifier}",
            )
        return part

    def _bounds(self) -> tuple[int, int, bool] | None:
        """The least and the most repetitions of a quantifier (2 for any number), and whether it gives nothing back."""
        for sign, least, most in (("*", 0, 2), ("+", 1, 2), ("?", 0, 1)):
            if self._take(sign):
                return least, most, not self._take("?") and self._take("+")
        if not self._take("{"):
            return None
        low, comma, high = self._until("}").partition(",")
        if not low.isdecimal() or not (high.isdecimal() or not high) or self._take("?"):
            raise Unanalysed("a brace")
        return int(low), int(high) if high else 2 if comma else int(low), False  # a + after it repeats it

    def _single(self) -> Node:
        if self._take("("):
            return self._group()
        for sign, ends in (("$", r"[\n\0\1]"), (r"\z", r"[\0\1]"), (r"\Z", r"\n?[\0\1]")):
            if self._take(sign):
                return _lookahead(self._atom(ALL), f"(?={ends})")
        if self._take("["):
            return self._atom(self._bracket())
        character = self._next()
        if character in "^*+?{":
            raise Unanalysed(character)
        if character == ".":
            return self._atom(~CharacterSet.of([], [0x0A, 0x0D]))
        return self._atom(self._character(character))

    def _atom(self, characters: CharacterSet) -> Node:
        self.atoms.append(characters)
        number = frozenset([len(self.atoms) - 1])
        return Node(number, number, False, characters.certain, False, False, characters.translated)

    def _group(self) -> Node:
        signs = ("?>", "?i:", "?:", "?=", "?!")
        sign = next((sign for sign in signs if self._take(sign)), "")
        if not sign and self.rest()[:1] in ("?", "*"):
            raise Unanalysed("a special group")
        outside, self._ignores_case = self._ignores_case, self._ignores_case or sign == "?i:"
        inside = self.alternatives()
        if not self._take(")"):
            raise Unanalysed("an open group")
        self._ignores_case = outside
        translated = f"({'?:' if sign in ('', '?i:') else sign}{inside.translated})"
        if sign in ("?=", "?!"):
            return _lookahead(inside, translated)
        if sign == "?>":
            return Node(inside.first, inside.last, inside.is_nullable, NONE, False, False, translated)
        return replace(inside, translated=translated)

    def _character(self, character: str) -> CharacterSet:
        """A character of the pattern, or the one that its escape denotes."""
        if character != "\\":
            return self._literal(character)
        character = self._next()
        if character in "sdw":
            return _class(character)
        if character in "SDW":
            return ~_class(character.lower())
        if character in "pP" and self._take("{"):
            is_negated = self._take("^") ^ (character == "P")
            found = _property(self._until("}"))
            return ~found if is_negated else found
        if character in "rntvf":
            return self._literal("\r\n\t\v\f"["rntvf".index(character)])
        if character in "ux" and self._take("{"):
            return self._literal(_numbered(self._until("}")))
        if character == "u":
            return self._literal(_numbered("".join(self._next() for _ in range(4))))
        if character.isalnum():
            raise Unanalysed(f"\\{character}")
        return self._literal(character)

    def _literal(self, character: str) -> CharacterSet:
        if not self._ignores_case:
            return CharacterSet.of([ord(character)])
        if not character.isascii():
            raise Unanalysed("a character that may fold to several")
        return CharacterSet.of([ord(character.lower()), ord(character.upper())], _like_ascii())

    def _bracket(self) -> CharacterSet:
        is_negated = self._take("^")
        found = CharacterSet(NONE, NONE, NO_BYTE, NO_BYTE)
        if self.rest()[:1] == "]":
            raise Unanalysed("an empty class")
        while not self._take("]"):
            character = self._next()
            if character + self.rest()[:1] in ("[:", "&&"):
                raise Unanalysed("a named class, or an intersection")
            if self.rest()[:1] == "-" and self.rest()[1:2] != "]" and character not in "[\\":
                self._place += 1
                low, high = ord(character), ord(self._next())
                if chr(high) in "[\\" or low > high or self._ignores_case:
                    raise Unanalysed("a range")
                member = CharacterSet.of(np.arange(low, high + 1))
            else:
                member = self._bracket() if character == "[" else self._character(character)
                if self.rest()[:1] == "-" and self.rest()[1:2] != "]":
                    raise Unanalysed("a range")
            found |= member
        return ~found if is_negated else found


def _lookahead(inside: Node, translated: str) -> Node:
    """A lookahead: checked after the preceding part, and not matched."""
    return Node(inside.first, frozenset(), True, NONE, False, False, translated)


def _numbered(digits: str) -> str:
    try:
        return chr(int(digits, 16))
    except (ValueError, OverflowError) as error:
        raise Unanalysed(f"the character {digits!r}") from error
