"""What does a page show before anybody has asked? A text with words of several pieces, one of them, and a head."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from detoklens.scores.factors import Side, for_each_head, key_side, query_side
from detoklens.scores.layer import Layer
from detoklens.scores.rotation import rotated_by_offset

TEXT = "The magician untied the wooden puppets before the unforgettable performance."
COMPARED = 2048  # key tokens that a true one is compared with


def sample(layer: Layer, limit: int) -> dict[str, Any]:
    """The text, its ids, a piece inside a word, and the head in which such pieces look most for the one before."""
    text, ids = _readable(layer, limit)
    if not text:
        first = layer.vocab_size // 2
        return {"token": first, "text": None, "ids": [first], "head": 0}
    inside = set(layer.vocabulary.word_internal())
    pairs = [(key, query) for key, query in pairwise(ids) if query in inside]
    head = joining_head(layer, pairs) if pairs else 0
    return {"token": pairs[0][1] if pairs else ids[-1], "text": text, "ids": ids, "head": head}


def _readable(layer: Layer, limit: int) -> tuple[str, list[int]]:
    """As many words of the text as the model can read; none where it has no tokenizer, or not their tokens."""
    words = TEXT.split(" ") if layer.has_vocabulary else []
    for number in range(len(words), 0, -1):
        text = " ".join(words[:number])
        ids = layer.vocabulary.encode(text)
        if 0 < len(ids) <= limit and _can_be_read(layer, ids):
            return text, ids
    return "", []


def joining_head(layer: Layer, pairs: Sequence[tuple[int, int]]) -> int:
    """The head in which the fewest other keys have a larger Tᵉᵉ than the true one, on average over the pairs."""
    step = max(1, layer.vocab_size // COMPARED)
    others = np.arange(0, layer.vocab_size, step)
    keys, queries = np.array(pairs).T
    asking = rotated_by_offset(layer.weights, _vectors(layer, query_side(layer.weights, layer.folded), queries), 1)
    asked = _vectors(layer, key_side(layer.weights, layer.folded), np.concatenate([keys, others]))
    scores = asking @ for_each_head(asked, layer.weights).transpose(0, 2, 1)
    true = np.diagonal(scores, axis1=1, axis2=2)
    larger = scores[:, :, len(keys) :] > true[:, :, None]
    return int(larger.mean(axis=(1, 2)).argmin())


def _vectors(layer: Layer, side: Side, tokens: np.ndarray) -> np.ndarray:
    inputs = layer.weights.token_embeddings[tokens] / layer.scales.bare_tokens()[tokens, None]
    return side.less_constant(inputs, side.constant)


def _can_be_read(layer: Layer, ids: list[int]) -> bool:
    return all(token < layer.vocab_size and token != layer.weights.padding_token_id for token in ids)
