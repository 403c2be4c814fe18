"""Classes of tokens: by spelling alone, and by their place in words according to corpus counts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int, Int64

from detoklens.corpus.counts import Counts
from detoklens.tokens import Vocabulary

KINDS = ("capital", "digit", "letter", "other")


def orthographic_classes(vocabulary: Vocabulary, vocab_size: int) -> Int64[np.ndarray, "token"]:
    """The class of each token id: (begins a word, continues one) × (capital, digit, other letter, anything else).

    A token begins a word if it has a leading space; in a WordPiece vocabulary, if it lacks the continuation mark. Rows
    of the embedding table without a token are in the last class.
    """
    mark, texts = vocabulary.continuing_mark, vocabulary.texts()[:vocab_size]
    classes = np.full(vocab_size, 2 * len(KINDS) - 1)
    for token, text in enumerate(texts):
        begins = not vocabulary.raw(token).startswith(mark) if mark else text.startswith(" ")
        first = text.removeprefix(" " if begins else mark)[:1]
        letter = "capital" if first.isupper() else "letter"
        kind = "digit" if first.isdigit() else letter if first.isalpha() else "other"
        classes[token] = KINDS.index(kind) + (0 if begins else len(KINDS))
    return classes


def exchange_classes(vocabulary: Vocabulary, tokens: Int[np.ndarray, "word"]) -> list[Int[np.ndarray, "word"]]:
    """Classes within which the null exchanges tokens: orthography and frequency, then orthography alone.

    Orthography means a leading space (or no continuation mark), a capital and a digit anywhere: coarser than
    `orthographic_classes`, because these few hundred words would often be alone in a separate class. Tokenizers
    number tokens by decreasing frequency, so a frequency bin is a doubling of the token id and needs no corpus.
    """
    found = {token: _orthography(vocabulary, token) for token in set(tokens.tolist())}
    orthography = np.array([found[token] for token in tokens.tolist()], np.int64)
    return [orthography + 8 * np.floor(np.log2(tokens + 1)).astype(np.int64), orthography]


def _orthography(vocabulary: Vocabulary, token: int) -> int:
    text, mark = vocabulary.text(token), vocabulary.continuing_mark
    begins_word = not vocabulary.raw(token).startswith(mark) if mark else text.startswith(" ")
    letters = text.removeprefix(" ").removeprefix(mark)
    return 4 * begins_word + 2 * letters[:1].isupper() + any(character.isdigit() for character in letters)


@dataclass(frozen=True)
class WordEvidence:
    """What spelling and counts say about each token's place in a word."""

    continues: Bool[np.ndarray, "token"]
    """Starts with a letter and no space (in a WordPiece vocabulary: has the continuation mark)."""
    begins: Bool[np.ndarray, "token"]
    """Letters only, after a leading space (in a WordPiece vocabulary: without the mark)."""
    after_letter: Float64[np.ndarray, "token"]
    """Share of its occurrences that follow a token ending in a letter; NaN if it follows none."""
    before_continuation: Float64[np.ndarray, "token"]
    """Share of its occurrences that a continuing token follows; NaN if none follows it."""

    def labels(self, continuation: float, whole: float, first: float) -> np.ndarray:
        """`C` (continuation), `W` (whole word), `F` (first piece) or an empty string for each token.

        A token that nothing precedes or follows has no class.
        """
        labels = np.full(len(self.begins), "")
        labels[self.continues & (self.after_letter > continuation)] = "C"
        labels[self.begins & (self.before_continuation < whole)] = "W"
        labels[self.begins & (self.before_continuation > first)] = "F"
        return np.where(np.isnan(self.after_letter + self.before_continuation), "", labels)


def word_evidence(vocabulary: Vocabulary, counts: Counts) -> WordEvidence:
    """Spelling of every token, and how often it follows a letter or precedes a continuing token."""
    size, bigrams = counts.vocabulary_size, counts.bigrams
    texts = (vocabulary.texts() + [""] * size)[:size]
    mark = vocabulary.continuing_mark
    continues, begins = np.zeros(size, bool), np.zeros(size, bool)
    continues[[token for token in vocabulary.word_internal() if token < size]] = True
    for token, text in enumerate(texts):
        word = text if mark else text[1:] if text.startswith(" ") else ""
        begins[token] = word.isalpha() and not continues[token] and token not in vocabulary.apart
    letter_last = np.array([text[-1:].isalpha() for text in texts])
    prefixes, suffixes = bigrams.prefixes.astype(np.int64), bigrams.suffixes.astype(np.int64)

    def share(of: Int64[np.ndarray, "pair"], where: Bool[np.ndarray, "pair"]) -> Float64[np.ndarray, "token"]:
        total = np.bincount(of, bigrams.counts, minlength=size)
        found = np.bincount(of, bigrams.counts * where, minlength=size)
        return np.divide(found, total, out=np.full(size, np.nan), where=total > 0)

    return WordEvidence(continues, begins, share(suffixes, letter_last[prefixes]), share(prefixes, continues[suffixes]))
