"""Which token does a model's text begin with?"""

from __future__ import annotations

from detoklens.errors import TokenError
from detoklens.scores.layer import Layer

END_OF_TEXT = "<|endoftext|>"


def beginning_token(layer: Layer) -> int:
    """The id to put in front of a text: the config's bos_token_id, else its eos_token_id, else `<|endoftext|>`.

    GPT-2 has one token for both ends. An id without a row in the embedding table (rows beyond the tokenizer's
    vocabulary are left out) is passed over.
    """
    for name in ("bos_token_id", "eos_token_id"):
        token_id = layer.checkpoint.config.get(name)
        if isinstance(token_id, int) and 0 <= token_id < layer.vocab_size:
            return token_id
    if layer.has_vocabulary:
        found = layer.vocabulary.tokenizer.token_to_id(END_OF_TEXT)
        if found is not None and found < layer.vocab_size:
            return int(found)
    raise TokenError(f"{layer.name} names no token to begin a text with; leave --prepend-bos away")
