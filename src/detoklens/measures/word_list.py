"""Which words are asked about, and into which tokens do they fall?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

import numpy as np
from jaxtyping import Int

from detoklens.errors import DetokLensError, TokenError
from detoklens.tokens import Vocabulary


@dataclass(frozen=True)
class SplitWord:
    """A word with its tokens; some of them may stand apart: unknown and special tokens are no pieces of a word."""

    word: str
    token_ids: tuple[int, ...]
    apart: frozenset[int] = frozenset()

    def pairs(self) -> Iterator[tuple[int, int, int]]:
        """Adjacent pieces: the number of the pair in the word, the piece before, the piece after."""
        for number, pair in enumerate(pairwise(self.token_ids)):
            if self.apart.isdisjoint(pair):
                yield number, *pair


@dataclass(frozen=True)
class WordPairs:
    """All adjacent pairs of pieces of some words: the piece before is the key, the piece after the query.

    `ahead` exchanges the two.
    """

    words: tuple[str, ...]
    pair: Int[np.ndarray, "pair"]
    keys: Int[np.ndarray, "pair"]
    queries: Int[np.ndarray, "pair"]

    def ahead(self) -> WordPairs:
        """The same pairs, asked from the piece before."""
        return WordPairs(self.words, self.pair, self.queries, self.keys)


def given_words(words: Path | Sequence[str] | None) -> list[str]:
    """The words of a file, or those given themselves, each once; the shipped ones where none are given."""
    if words is None:
        return shipped_words()
    if isinstance(words, Path):
        return listed_words(_text_of(words))
    return list(dict.fromkeys(word.strip() for word in words if word.strip()))


def _text_of(path: Path) -> str:
    wanted = "a word list, one word a line"
    if not path.is_file():
        raise DetokLensError(f"{path}: no such file; name {wanted}")
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DetokLensError(f"{path}: not UTF-8 at byte {error.start}; give {wanted}, as UTF-8") from error


def shipped_words() -> list[str]:
    """The words, names and chemical substances that come with the package."""
    return listed_words(files("detoklens.measures").joinpath("words.txt").read_text(encoding="utf-8"))


def listed_words(text: str) -> list[str]:
    """The entries of a word list, each once: one a line; empty lines and lines that begin with # are none."""
    entries = (line.strip() for line in text.splitlines())
    return list(dict.fromkeys(entry for entry in entries if entry and not entry.startswith("#")))


def fingerprint_of(words: Sequence[str]) -> str:
    """sha256 that tells one list from another."""
    return sha256("\n".join(words).encode(errors="surrogatepass")).hexdigest()


def split_words(vocabulary: Vocabulary, words: Iterable[str], leading_space: bool = True) -> list[SplitWord]:
    """Each word's tokens as in running text, with a space in front, or as at the start of a text."""
    space = " " if leading_space else ""
    return [SplitWord(word, tuple(vocabulary.encode(space + word)), vocabulary.apart) for word in words]


def word_pairs(split: Sequence[SplitWord]) -> WordPairs:
    """The adjacent pairs of every word that has several pieces; an error where there is none."""
    found = [(word.word, *pair) for word in split for pair in word.pairs()]
    if not found:
        raise TokenError(
            f"none of the {len(split)} words is split by this tokenizer into pieces that it knows; "
            "give a list with rarer or longer words"
        )
    words, numbers, keys, queries = zip(*found, strict=True)
    return WordPairs(words, np.array(numbers), np.array(keys), np.array(queries))
