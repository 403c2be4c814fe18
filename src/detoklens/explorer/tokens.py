"""Which tokens are there, as the page reads them? Their texts, the bytes of those that are no text, the tokenizer."""

from __future__ import annotations

from typing import Any

from detoklens.scores.layer import Layer


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
