"""Small random layers of every kind that a page can meet, with a tokenizer, and the studies of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from detoklens.questions.study import Study, Work
from detoklens.scores.layer import Layer
from detoklens.tokens import Vocabulary
from detoklens.weights.checkpoint import Checkpoint
from detoklens.weights.first_layer import FirstLayer
from tests.layers import random_first_layer, write_tokenizer
from tests.spelled import LINES, counts_of

HEADS, WIDTH, LENGTH = 4, 6, 40


def first_layer(kind: str, vocab_size: int) -> FirstLayer:
    """A layer in which every part matters, scores staying small enough that attention is spread."""
    layer = random_first_layer(HEADS, WIDTH, vocab_size, LENGTH, seed=len(kind), dtype="float32")
    calm = {name: getattr(layer, name) * np.float32(0.12) for name in ("query_weight", "key_weight")}
    layer = replace(layer, **calm)
    return replace(layer, **KINDS[kind](layer))


def _turned(layer: FirstLayer, **more: Any) -> dict[str, Any]:
    """Rotary: two pairs of the six coordinates turn, two heads share keys."""
    shared = {name: getattr(layer, name)[:, : HEADS // 2] for name in ("key_weight", "value_weight")}
    biases = {name: getattr(layer, name)[: HEADS // 2] for name in ("key_bias", "value_bias")}
    return {
        "position_embeddings": np.zeros((0, HEADS * WIDTH), np.float32),
        "rotary_frequencies": np.array([0.9, 0.13]),
        "longest_text": LENGTH,
        "norm_kind": "rms",
        **shared,
        **biases,
        **more,
    }


def _without_biases(layer: FirstLayer) -> dict[str, Any]:
    turned = _turned(layer, window=5, softcap=2.0)
    nothing = {name: np.zeros_like(turned.get(name, getattr(layer, name))) for name in ("query_bias", "key_bias")}
    return turned | nothing | {"norm_bias": np.zeros_like(layer.norm_bias)}


def _normed(layer: FirstLayer) -> dict[str, Any]:
    gains = np.linspace(0.5, 1.5, WIDTH, dtype=np.float32)
    return _turned(layer, query_norm_gain=gains, key_norm_gain=gains[::-1].copy(), rotary_factor=1.2)


def _lowered(layer: FirstLayer) -> dict[str, Any]:
    slopes = np.array([0.5, 0.25, 0.125, 0.0625])
    nowhere = np.zeros((0, HEADS * WIDTH), np.float32)
    return {"position_embeddings": nowhere, "alibi_slopes": slopes, "longest_text": LENGTH}


KINDS: dict[str, Any] = {
    "learned": lambda _layer: {},
    "learned both ways": lambda _layer: {"is_causal": False, "padding_token_id": 3},
    "learned without a norm": lambda _layer: {"norm_kind": "none"},
    "rotary": _turned,
    "rotary without biases": _without_biases,
    "rotary normed": _normed,
    "alibi": _lowered,
}


def vocabulary(folder: Path) -> Vocabulary:
    return Vocabulary.from_folder(write_tokenizer(folder, LINES, 330))


def study_of(kind: str, tokens: Vocabulary, with_counts: bool = True) -> Study:
    """A study of a layer of this kind."""
    weights = first_layer(kind, tokens.size)
    layer = Layer(Checkpoint(kind, {"eos_token_id": 0}, weights, tokens, None))
    return Study(layer, counts_of(layer) if with_counts else None, work=Work(workers=1))
