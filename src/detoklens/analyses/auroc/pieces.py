"""Which tokens continue a word? The query tokens that detokenization is about."""

from __future__ import annotations

from detoklens.tokens import Vocabulary


def word_internal(vocabulary: Vocabulary) -> list[int]:
    """The tokens that begin with a letter and without a space, so that they go on with the word before them.

    A WordPiece tokenizer marks them itself (`##ing`); there a token without the mark begins a word.
    """
    mark = getattr(vocabulary.tokenizer.model, "continuing_subword_prefix", None) or ""
    texts = enumerate(map(vocabulary.raw, range(vocabulary.size))) if mark else enumerate(vocabulary.texts())
    return [token for token, text in texts if text.startswith(mark) and text[len(mark) : len(mark) + 1].isalpha()]
