"""What is token 10465? The vocabulary, shared by checkpoints and corpora."""

from detoklens.tokens.vocabulary import Vocabulary

__all__ = ["Vocabulary"]
