"""Words and their pieces: tokens whose text is also the text of two or more other tokens.

A split is c → (a, b) with text(a) + text(b) = text(c): the tokenizer's own merge, or, where it has none, the longest
first piece whose rest is a token, too. A longer chain splits the first piece again, so the last piece stays the same:
(a, b), (a₁, a₂, b), (a₁₁, a₁₂, a₂, b).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from detoklens.measures.words import split_words
from detoklens.tokens import Vocabulary

Splits = Mapping[int, tuple[int, int]]


@dataclass(frozen=True)
class Chains:
    """Words in the same number of pieces, and the token that is the whole word (the twin)."""

    pieces: Int[np.ndarray, "chain piece"]
    whole: Int[np.ndarray, "chain"]

    def __len__(self) -> int:
        return len(self.whole)

    def only(self, rows: Int[np.ndarray, "row"]) -> Chains:
        return Chains(self.pieces[rows], self.whole[rows])

    def sample(self, size: int, seed: int) -> Chains:
        """At most `size` words, drawn without replacement, in order of token id."""
        if len(self) <= size:
            return self
        drawn = np.random.default_rng(seed).choice(len(self), size, replace=False)
        return self.only(np.sort(drawn))


def merge_splits(vocabulary: Vocabulary) -> dict[int, tuple[int, int]]:
    """Each merged token's pieces by its first merge; some tokenizers list several."""
    splits: dict[int, tuple[int, int]] = {}
    for left, right, merged in vocabulary.merges():
        splits.setdefault(merged, (left, right))
    return splits


def text_splits(vocabulary: Vocabulary) -> dict[int, tuple[int, int]]:
    """Each token's longest first piece whose rest is a continuation token (`##ing`)."""
    mark = getattr(vocabulary.tokenizer.model, "continuing_subword_prefix", None) or ""
    ids = {vocabulary.raw(token): token for token in range(vocabulary.size) if token not in vocabulary.apart}
    splits: dict[int, tuple[int, int]] = {}
    for raw, token in ids.items():
        for end in range(len(raw) - 1, len(mark) if raw.startswith(mark) else 0, -1):
            if raw[:end] in ids and mark + raw[end:] in ids:
                splits[token] = ids[raw[:end]], ids[mark + raw[end:]]
                break
    return splits


def word_tokens(vocabulary: Vocabulary, tokens: Iterable[int]) -> list[int]:
    """The tokens that consist of letters, with or without a leading space."""
    return [token for token in tokens if _is_of_letters(vocabulary.text(token).removeprefix(" "))]


def _is_of_letters(text: str) -> bool:
    """Whether all characters are letters or combining marks, such as Indic vowels."""
    return bool(text) and all(unicodedata.category(character)[0] in "LM" for character in text)


def listed_tokens(vocabulary: Vocabulary, words: Iterable[str]) -> list[int]:
    """The words of a list that are single tokens after a space."""
    split = split_words(vocabulary, words)
    return [word.token_ids[0] for word in split if len(word.token_ids) == 1 and word.apart.isdisjoint(word.token_ids)]


def chains(splits: Splits, wholes: Iterable[int], pieces: int) -> Chains:
    """The words among `wholes` that split into this many pieces, in order of token id."""
    found = {whole: _split(splits, whole, pieces) for whole in sorted(set(wholes))}
    kept = [(whole, *chain) for whole, chain in found.items() if chain is not None]
    rows = np.array(kept, np.int64).reshape(-1, pieces + 1)
    return Chains(rows[:, 1:], rows[:, 0])


def exchange_classes(vocabulary: Vocabulary, tokens: Int[np.ndarray, "word"]) -> list[Int[np.ndarray, "word"]]:
    """Classes within which the null exchanges tokens: orthography and frequency, then orthography alone.

    Orthography means a leading space (or no continuation mark), a capital and a digit. Tokenizers number tokens by
    decreasing frequency, so a frequency bin is a doubling of the token id and needs no corpus.
    """
    found = {token: _orthography(vocabulary, token) for token in set(tokens.tolist())}
    orthography = np.array([found[token] for token in tokens.tolist()], np.int64)
    return [orthography + 8 * np.floor(np.log2(tokens + 1)).astype(np.int64), orthography]


def _orthography(vocabulary: Vocabulary, token: int) -> int:
    text, mark = vocabulary.text(token), vocabulary.continuing_mark
    begins_word = not vocabulary.raw(token).startswith(mark) if mark else text.startswith(" ")
    letters = text.removeprefix(" ").removeprefix(mark)
    return 4 * begins_word + 2 * letters[:1].isupper() + any(character.isdigit() for character in letters)


def _split(splits: Splits, whole: int, pieces: int) -> tuple[int, ...] | None:
    chain: tuple[int, ...] = (whole,)
    while len(chain) < pieces:
        if chain[0] not in splits:
            return None
        chain = (*splits[chain[0]], *chain[1:])
    return chain
