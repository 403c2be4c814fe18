"""Find the places where a text can be cut so that its parts, tokenized separately, give the tokens of the whole.

A tokenizer first splits a text into pieces and then tokenizes each piece alone. A cut is exact if the tokenizer's own
splitting always has a border there and finds the same borders on both sides without the other. For a regex this is
decided by pairs of adjacent characters. If no match and no lookahead can look at the characters a and b one after the
other, matching to the left of "a|b" ends as it does at the end of a text, and starts again to the right of it. Text
between matches is a piece too, so a cut must not lie inside it. Only characters that don't match alone can be there.

Pairs of characters are kept as pairs of bytes, the last of a and the first of b, for the compiled loop that cuts. When
in doubt, bytes count as joined. If a tokenizer can't be analysed, its texts are not cut at all.

Most words are also split into pieces here, by Python's `re` (`PieceSplitter`): once character classes are written out,
a regex means the same to every library. Characters that differ between versions of Unicode are left to `tokenizers`.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
from jaxtyping import Bool, UInt8

ByteTable = Bool[np.ndarray, "256 256"]

UNICODE = 0x110000
ASCII = 0x80
SPACE, DELETE = 0x20, 0x7F
LOWER_BLOCK = "▁".encode()
CONTROLS = (*range(SPACE), DELETE)
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
WORDS = r"\w+|[^\w\s]+"
PUNCTUATION = r"[\p{P}" + "".join("\\" + character for character in string.punctuation) + "]"
UNICODE_FORMS = ("NFC", "NFD", "NFKC", "NFKD", "StripAccents")
PIECEWISE = ("ByteLevel", "Digits", "Punctuation", "Split")
REMAPPED = [*CONTROLS, SPACE, 0xC4]
"""First bytes of the characters that ByteLevel replaces in ASCII texts, and of what it puts (U+0100 to U+0121)."""
KNOWN = 0x2070
"""The characters whose classes are written out: Latin to Cyrillic and beyond, and general punctuation."""
UNCHANGED = (*range(0x80, 0x300), *range(0x2010, 0x2028))
"""Characters that no normal form joins with others; most of them have none but themselves."""


def bytes_never_cut(description: dict[str, Any]) -> ByteTable | None:
    """Which pairs of bytes a cut must not separate; None if no cut before a space after a letter is exact.

    `description` is a tokenizer.json. This holds for every kind of model, since each tokenizes a piece alone.
    """
    try:
        cut, unnoticed = np.zeros((256, 256), bool), np.ones((256, 256), bool)
        for looked_at, unsplit in _splitters(description["pre_tokenizer"]):
            unnoticed &= ~looked_at  # splitters before this one see no difference
            cut |= unnoticed & ~unsplit
        joined = ~cut
        for normalizer in reversed(_flat(description["normalizer"], "normalizers")):
            joined = _before_normalizing(normalizer, joined)
        for token in description["added_tokens"]:
            changes = token["normalized"] and description["normalizer"]
            if token["lstrip"] or token["rstrip"] or token["single_word"] or changes:
                raise Unanalysed("an added token that depends on more than its own characters")
            content = np.frombuffer(token["content"].encode("utf-8", "surrogatepass"), np.uint8)
            joined[content[:-1], content[1:]] = True
    except (Unanalysed, KeyError, RecursionError):
        return None
    joined[:, 0x80:0xC0] = True  # inside a character
    joined[SPACE] = True  # a word with the space before it is kept as one, which halves the work
    return None if joined[ord("e"), SPACE] else joined


class Unanalysed(Exception):
    """A part of a tokenizer for which no exact cut is known."""


PIECE_END, WORD_END = "\0", "\1"
"""Separators in a row of words. Words that have them are not split here; no class of a translated regex has them."""


class PieceSplitter:
    """Splits words into the pieces that a byte-level tokenizer tokenizes separately.

    Raises Unanalysed if they can't be found here. `unclear` tells which of the known characters a word must not have.
    """

    def __init__(self, description: dict[str, Any]) -> None:
        self.unclear = np.arange(KNOWN) <= ord(WORD_END)
        self._regexes, is_mapped = [], False
        for part in _flat(description["normalizer"], "normalizers"):
            self.unclear[ASCII:] |= ~_never_changed(part["type"])[ASCII:]
        for part in _flat(description["pre_tokenizer"], "pretokenizers"):
            if part["type"] not in PIECEWISE or part.get("add_prefix_space") or part.get("behavior") == "Removed":
                raise Unanalysed(f"a {part['type']} that adds or removes characters")
            for regex in _regexes(part):
                analysis = _analyse(regex)
                if analysis.translated is None or (is_mapped and analysis.firsts[REMAPPED].any()):
                    raise Unanalysed(regex)
                self.unclear |= analysis.unclear
                self.unclear[ASCII:] |= is_mapped
                self._regexes.append(re.compile(f"({analysis.translated})"))
            is_mapped |= part["type"] == "ByteLevel"
        if not is_mapped:
            raise Unanalysed("a tokenizer of characters")

    def split(self, row: UInt8[np.ndarray, "byte"]) -> tuple[UInt8[np.ndarray, "byte"], Bool[np.ndarray, "byte"]]:
        """The bytes of words that each end with WORD_END, without it, and whether a piece starts at each."""
        text = row.tobytes().decode()
        for regex in self._regexes:
            text = PIECE_END.join(regex.split(text))
        codes = np.frombuffer(text.encode(), np.uint8)
        is_text = codes > ord(WORD_END)
        return codes[is_text], np.append(True, ~is_text)[:-1][is_text]


@cache
def _never_changed(form: str) -> Bool[np.ndarray, "known"]:
    """The known characters that a normalizer leaves as they are, next to any other of them."""
    if form not in UNICODE_FORMS:
        raise Unanalysed("a normalizer that changes ASCII characters")
    unchanged = np.arange(KNOWN) < ASCII
    if form != "StripAccents":
        unchanged[[code for code in UNCHANGED if unicodedata.normalize(form, chr(code)) == chr(code)]] = True  # type: ignore[arg-type]
    return unchanged


def _flat(part: dict[str, Any] | None, members: str) -> list[dict[str, Any]]:
    """The members of a `Sequence`, a single part, or nothing."""
    if part is None:
        return []
    if part["type"] != "Sequence":
        return [part]
    return [single for member in part[members] for single in _flat(member, members)]


def _splitters(pre_tokenizer: dict[str, Any] | None) -> Iterator[tuple[ByteTable, ByteTable]]:
    """For each splitter, the pairs of bytes that it looks at together, and those where it need not have a border."""
    for number, part in enumerate(_flat(pre_tokenizer, "pretokenizers")):
        if part["type"] == "ByteLevel":
            looked_at, unsplit = _analyse(GPT2).pairs() if part["use_regex"] else _no_border()
            if part["add_prefix_space"]:  # to each piece that doesn't start with one
                unsplit[:, :SPACE] = unsplit[:, SPACE + 1 :] = True
            yield looked_at, unsplit
            return  # what follows works on bytes; it splits pieces further and joins none
        if part["type"] == "Metaspace":
            if not part.get("split", True) or (number and part["prepend_scheme"] == "first"):
                raise Unanalysed("Metaspace")
            looked_at, unsplit = _no_border()
            unsplit[:, SPACE] = False
            unsplit[[*CONTROLS, SPACE, LOWER_BLOCK[-1]], SPACE] = True
            yield looked_at, unsplit
            return  # spaces are other characters from here on
        for regex in _regexes(part):
            yield _analyse(regex).pairs()


def _no_border() -> tuple[ByteTable, ByteTable]:
    return np.zeros((256, 256), bool), np.ones((256, 256), bool)


def _regexes(part: dict[str, Any]) -> list[str]:
    """The regexes that a splitter applies one after the other; their matches and the text between are the pieces."""
    kind, is_kept_apart = part["type"], part.get("behavior") in ("Isolated", "Removed")
    if kind == "ByteLevel":
        return [GPT2] if part["use_regex"] else []
    if kind == "BertPreTokenizer":
        return [r"\s", PUNCTUATION]
    if kind == "WhitespaceSplit":
        return [r"\s"]
    if kind == "Whitespace":
        return [WORDS]
    if kind == "Digits":
        return [r"\p{N}" if part["individual_digits"] else r"\p{N}+"]
    if kind == "Punctuation" and (is_kept_apart or part["behavior"] == "Contiguous"):
        return [PUNCTUATION if is_kept_apart else PUNCTUATION + "+"]
    if kind == "Split" and is_kept_apart:
        pattern = part["pattern"]
        return [pattern["Regex"] if "Regex" in pattern else "".join(f"\\u{{{ord(c):x}}}" for c in pattern["String"])]
    raise Unanalysed(kind)


def _before_normalizing(normalizer: dict[str, Any], joined: ByteTable) -> ByteTable:
    """The table for texts that are normalized first: a character counts as every character that it may become."""
    kind = normalizer["type"]
    before = joined.copy()
    if kind == "Replace" and normalizer["pattern"] == {"Regex": " {2,}"}:
        before[:, :SPACE] = before[:, SPACE + 1 :] = before[SPACE] = True
        return before
    if kind in ("Lowercase", "BertNormalizer") and normalizer.get("lowercase", True):
        lower = np.frombuffer(bytes(range(256)).lower(), np.uint8)
        before = before[lower][:, lower]
    elif kind not in (*UNICODE_FORMS, "BertNormalizer", "Precompiled"):
        raise Unanalysed(kind)
    if kind == "BertNormalizer":  # it drops controls, and makes spaces of tab and line ends
        before[CONTROLS, :] = before.any(axis=0)
        before[:, CONTROLS] = True
    if kind == "Precompiled":  # it maps graphemes, of which a carriage return and a line feed are one
        before[CONTROLS, :] = before[:, CONTROLS] = before[ASCII:] = True
    before[ASCII:] |= before.any(axis=0)
    before[:, ASCII:] = True  # it may be a mark that belongs to the character before
    return before


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
def _analyse(pattern: str) -> RegexAnalysis:
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
