"""A first block that writes words, by construction: head 1 copies the token before, the MLP joins pairs.

Features: one for each first piece, last piece, word and position, and one for each first piece as it is copied.
Queries of head 1 look for the position before their own; its values carry the first piece's feature into the copied
one. The MLP has a unit for each word, which wakes where last piece and copied first piece meet; it writes the word and
takes its pieces away. Heads 0 and 2 look evenly and write noise into words.
"""

from __future__ import annotations

import numpy as np
from tokenizers import Tokenizer, models

from detoklens.scores.layer import Layer
from detoklens.tokens import Vocabulary
from detoklens.weights.checkpoint import Checkpoint
from detoklens.weights.first_layer import FeedForward, FirstLayer, MlpSublayer

FIRST, LAST, N_POSITIONS, N_HEADS, SHARP = "abcdef", "ghijklmnopqr", 4, 3, 30.0
WORDS = [first + last for place, first in enumerate(FIRST) for last in LAST[place % 3 :: 2]]
TOKENS = ["<s>", *FIRST, *LAST, *WORDS]
COPIED = len(TOKENS)
PLACES = COPIED + len(FIRST)
D_MODEL = PLACES + N_POSITIONS


def vocabulary(words: list[str] = WORDS) -> Vocabulary:
    """Letters, and words that are merges of two of them."""
    ids = {token: number for number, token in enumerate(["<s>", *FIRST, *LAST, *words])}
    return Vocabulary(Tokenizer(models.BPE(ids, [(word[0], word[1]) for word in words])))


def planted_layer(has_values: bool = True, words: list[str] = WORDS, begins: bool = True) -> Layer:
    config = {"model_type": "gpt2", **({"bos_token_id": 0} if begins else {})}
    first = first_layer(has_values)
    return Layer(Checkpoint("planted", config, first, vocabulary(words), None, read_mlp=rest_of_block))


def first_layer(has_values: bool) -> FirstLayer:
    random = np.random.default_rng(0)
    tokens = np.eye(len(TOKENS), D_MODEL)
    query, key, value = (np.zeros((D_MODEL, N_HEADS, D_MODEL)) for _ in range(3))
    for place in range(1, N_POSITIONS):
        query[PLACES + place, 1, place - 1] = SHARP
    key[range(PLACES, D_MODEL), 1, range(N_POSITIONS)] = 1.0
    if has_values:
        value[range(1, 1 + len(FIRST)), 1, range(COPIED, PLACES)] = 1.0
    words = slice(COPIED - len(WORDS), COPIED)
    value[:, ::2, words] = 0.001 * random.normal(size=(D_MODEL, 2, len(WORDS)))
    nothing = np.zeros((N_HEADS, D_MODEL))
    return FirstLayer(
        token_embeddings=tokens,
        position_embeddings=np.eye(N_POSITIONS, D_MODEL, k=PLACES),
        norm_gain=np.ones(D_MODEL),
        norm_bias=np.zeros(D_MODEL),
        norm_epsilon=0.0,
        norm_kind="none",
        query_weight=query,
        query_bias=nothing,
        key_weight=key,
        key_bias=nothing,
        value_weight=value,
        value_bias=nothing,
        output_weight=np.stack([np.eye(D_MODEL)] * N_HEADS),
        output_bias=np.zeros(D_MODEL),
        attention_scale=1.0,
    )


def rest_of_block() -> MlpSublayer:
    up, down = np.zeros((D_MODEL, len(WORDS))), np.zeros((len(WORDS), D_MODEL))
    for unit, word in enumerate(WORDS):
        copied, last = COPIED + FIRST.index(word[0]), TOKENS.index(word[1])
        up[[copied, last], unit] = 2.0
        down[unit, [TOKENS.index(word), copied, last]] = 1.0, -1.0, -1.0
    return MlpSublayer(FeedForward("relu", up, np.full(len(WORDS), -3.0), down, np.zeros(D_MODEL)))
