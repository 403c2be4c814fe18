"""How do tokens read in a table? As text where the checkpoint has a tokenizer, null where it has none."""

from __future__ import annotations

from collections.abc import Iterable

from detoklens.scores.layer import Layer


def token_texts(layer: Layer, token_ids: Iterable[int]) -> list[str | None]:
    """The text of each token."""
    if not layer.has_vocabulary:
        return [None for _ in token_ids]
    return [layer.vocabulary.text(int(token_id)) for token_id in token_ids]


def joined_texts(layer: Layer, key_ids: Iterable[int], query_ids: Iterable[int]) -> list[str | None]:
    """The text of each key followed by its query."""
    if not layer.has_vocabulary:
        return [None for _ in key_ids]
    pairs = zip(key_ids, query_ids, strict=True)
    return [layer.vocabulary.join([int(key), int(query)]) for key, query in pairs]
