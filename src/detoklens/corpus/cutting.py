"""Find the places where a text can be cut so that its parts, tokenized separately, give the tokens of the whole.

A tokenizer first splits a text into pieces and then tokenizes each piece alone. A cut is exact if the tokenizer's own
splitting always has a border there and finds the same borders on both sides without the other. For a regex this is
decided by pairs of adjacent characters. If no match and no lookahead can look at the characters a and b one after the
other, matching to the left of "a|b" ends as it does at the end of a text, and starts again to the right of it. Text
between matches is a piece too, so a cut must not lie inside it. Only characters that don't match alone can be there.

Pairs of characters are kept as pairs of bytes, the last of a and the first of b, for the compiled loop that cuts. When
in doubt, bytes count as joined. If a tokenizer can't be analysed, its texts are not cut at all.

Most words are also split into pieces here, by Python's `re` (`PieceSplitter`). `regexes` analyses and translates the
tokenizer's own regexes.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from jaxtyping import Bool, UInt8

from detoklens.corpus.regexes import ASCII, KNOWN, PIECE_END, WORD_END, ByteTable, Unanalysed, analyse

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
                analysis = analyse(regex)
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
            looked_at, unsplit = analyse(GPT2).pairs() if part["use_regex"] else _no_border()
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
            yield analyse(regex).pairs()


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
