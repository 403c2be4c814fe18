"""The vocabulary: token ids and their text, shared by checkpoints and corpora."""

from detoklens.tokens.vocabulary import Vocabulary

__all__ = ["Vocabulary"]
