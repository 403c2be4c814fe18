"""Orthographic classes of tokens: whether a token begins a word, and the kind of its first character."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int64

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
        first = text.removeprefix(mark if not begins else " ")[:1]
        classes[token] = KINDS.index(_kind(first)) + (0 if begins else len(KINDS))
    return classes


def _kind(character: str) -> str:
    if character.isdigit():
        return "digit"
    if character.isalpha():
        return "capital" if character.isupper() else "letter"
    return "other"
