"""Which tokens are there, as the page reads them? Their texts, the bytes of those that are no text, the tokenizer."""

from __future__ import annotations

from typing import Any

from detoklens.scores.layer import Layer

SAMPLE = "The magician untied the wooden puppets before the unforgettable performance."


def described_tokens(layer: Layer) -> dict[str, Any]:
    """tokens.json: one text for each row of the embedding table."""
    vocabulary = layer.vocabulary
    as_bytes = {token: vocabulary.as_bytes(token) for token in range(layer.vocab_size)}
    return {
        "texts": [vocabulary.text(token) for token in as_bytes],
        "bytes": {str(token): found.hex() for token, found in as_bytes.items() if not _is_text(found)},
        "special": sorted(token for token in vocabulary.apart if token < layer.vocab_size),
        "continuing_prefix": getattr(vocabulary.tokenizer.model, "continuing_subword_prefix", None) or "",
    }


def _is_text(found: bytes) -> bool:
    try:
        found.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def sample(layer: Layer, limit: int) -> dict[str, Any]:
    """What a page shows before anybody has asked: a text of several pieces a word, and one of those pieces."""
    ids = layer.vocabulary.encode(SAMPLE)[:limit] if layer.has_vocabulary else []
    if not ids or not _can_be_read(layer, ids):
        first = layer.vocab_size // 2
        return {"token": first, "text": None, "ids": [first]}
    inside = set(layer.vocabulary.word_internal())
    return {"token": next((token for token in ids[1:] if token in inside), ids[-1]), "text": SAMPLE, "ids": ids}


def _can_be_read(layer: Layer, ids: list[int]) -> bool:
    return all(token < layer.vocab_size and token != layer.weights.placeless_token for token in ids)
