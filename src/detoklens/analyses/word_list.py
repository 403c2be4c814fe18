"""Which words are asked about, and into which tokens do they fall?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from itertools import pairwise

import numpy as np
from jaxtyping import Int

from detoklens.errors import TokenError
from detoklens.tokens import Vocabulary


@dataclass(frozen=True)
class SplitWord:
    """A word with its tokens."""

    word: str
    token_ids: tuple[int, ...]


@dataclass(frozen=True)
class WordPairs:
    """All adjacent pairs of pieces of some words: the piece before is the key, the piece after the query."""

    words: tuple[str, ...]
    pair: Int[np.ndarray, "pair"]
    keys: Int[np.ndarray, "pair"]
    queries: Int[np.ndarray, "pair"]


def shipped_words() -> list[str]:
    """The words, names and chemical substances that come with the package."""
    return listed_words(files("detoklens.analyses").joinpath("words.txt").read_text(encoding="utf-8"))


def listed_words(text: str) -> list[str]:
    """The entries of a word list, each once: one a line; empty lines and lines that begin with # are none."""
    entries = (line.strip() for line in text.splitlines())
    return list(dict.fromkeys(entry for entry in entries if entry and not entry.startswith("#")))


def fingerprint_of(words: Sequence[str]) -> str:
    """sha256 that tells one list from another."""
    return sha256("\n".join(words).encode()).hexdigest()


def split_words(vocabulary: Vocabulary, words: Iterable[str], leading_space: bool = True) -> list[SplitWord]:
    """Each word's tokens as in running text, with a space in front, or as at the start of a text."""
    space = " " if leading_space else ""
    return [SplitWord(word, tuple(vocabulary.encode(space + word))) for word in words]


def word_pairs(split: Sequence[SplitWord]) -> WordPairs:
    """The adjacent pairs of every word that has several pieces; an error where there is none."""
    found = [
        (word.word, number, key, query)
        for word in split
        for number, (key, query) in enumerate(pairwise(word.token_ids))
    ]
    if not found:
        raise TokenError(
            f"none of the {len(split)} words is split by this tokenizer, so there is nothing to rank; "
            "give a list with rarer or longer words"
        )
    words, numbers, keys, queries = zip(*found, strict=True)
    return WordPairs(words, np.array(numbers), np.array(keys), np.array(queries))
