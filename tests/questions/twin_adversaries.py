"""First blocks that write no words, but look as if they did to a control that is too weak.

Random weights on embeddings with structure bring a word's pieces near its token whenever pieces and word resemble each
other. A copier brings the first piece to the last position and does nothing else.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import detoklens as dl
from detoklens.scores.layer import Layer
from detoklens.tokens import Vocabulary
from detoklens.weights.checkpoint import Checkpoint, no_mlp
from detoklens.weights.first_layer import FeedForward, FirstLayer, MlpSublayer, Norm
from tests.layers import random_first_layer
from tests.questions.planted_words import SHARP

N_HEADS, N_POSITIONS = 4, 6


def spelled(vocab: Vocabulary, width: int, random: np.random.Generator) -> np.ndarray:
    """The sum of a token's characters, and some noise."""
    texts = vocab.texts()
    letters = {letter: random.normal(size=width) for letter in sorted({*"".join(texts)})}
    sums = np.stack([sum((letters[letter] for letter in text), np.zeros(width)) for text in texts])
    return sums + 0.3 * random.normal(size=sums.shape)


def by_class(vocab: Vocabulary, width: int, random: np.random.Generator) -> np.ndarray:
    """A centre for each first letter and each last letter, and noise."""
    texts = [text or "?" for text in vocab.texts()]
    centres = {letter: random.normal(size=(2, width)) for letter in sorted({*"".join(texts)})}
    mean = np.stack([centres[text[0]][0] + centres[text[-1]][1] for text in texts])
    return mean + random.normal(size=mean.shape)


def of_demo(_vocab: Vocabulary, _width: int, _random: np.random.Generator) -> np.ndarray:
    return dl.load("demo").weights.token_embeddings.astype(np.float64)


EMBEDDINGS = {"spelled": (spelled, 32), "class": (by_class, 32), "demo": (of_demo, 128)}


def random_block(kind: str, query_scale: float, seed: int = 0) -> Layer:
    """A random block with the demo's tokenizer; a small `query_scale` makes its attention nearly uniform."""
    embed, width = EMBEDDINGS[kind]
    vocab, random = dl.load("demo").vocabulary, np.random.default_rng(seed)
    tokens = embed(vocab, width, random)
    first = random_first_layer(N_HEADS, width // N_HEADS, len(tokens), N_POSITIONS, seed=seed)
    spread, fan = tokens.std(), width**-0.5
    sides = {f"{side}_weight": fan * getattr(first, f"{side}_weight") for side in ("query", "key", "value", "output")}
    sides["query_weight"] = query_scale * sides["query_weight"]
    first = replace(
        first,
        token_embeddings=tokens / spread,
        position_embeddings=0.1 * first.position_embeddings,
        norm_gain=np.ones(width),
        norm_bias=np.zeros(width),
        **sides,
    )
    up, down = fan * random.normal(size=(width, 4 * width)), fan / 2 * random.normal(size=(4 * width, width))
    mlp = FeedForward("gelu_tanh", up, np.zeros(4 * width), down, np.zeros(width))
    rest = MlpSublayer(mlp, input_norm=Norm("layer", np.ones(width), np.zeros(width), 1e-5))
    return Layer(
        Checkpoint("random", {"model_type": "gpt2", "bos_token_id": 0}, first, vocab, None, read_mlp=lambda: rest)
    )


def copier(width: int = 48) -> Layer:
    """Head 1 attends to the position before by position alone and copies its token; there is no MLP.

    Features are those of spelled embeddings, then one for each position. Head 0 does nothing.
    """
    vocab, both = dl.load("demo").vocabulary, width + N_POSITIONS
    embeddings = spelled(vocab, width, np.random.default_rng(0))
    query, key, value, output = (np.zeros((both, 2, both)) for _ in range(4))
    positions = np.arange(N_POSITIONS)
    query[width + positions[1:], 1, positions[:-1]] = SHARP
    key[width + positions, 1, positions] = 1.0
    value[range(width), 1, range(width)] = 1.0
    output[range(both), 1, range(both)] = 1.0
    first = FirstLayer(
        token_embeddings=np.pad(embeddings, ((0, 0), (0, N_POSITIONS))),
        position_embeddings=np.eye(N_POSITIONS, both, k=width),
        norm_gain=np.ones(both),
        norm_bias=np.zeros(both),
        norm_epsilon=0.0,
        norm_kind="none",
        query_weight=query,
        query_bias=np.zeros((2, both)),
        key_weight=key,
        key_bias=np.zeros((2, both)),
        value_weight=value,
        value_bias=np.zeros((2, both)),
        output_weight=output.swapaxes(0, 1),
        output_bias=np.zeros(both),
        attention_scale=1.0,
    )
    config = {"model_type": "gpt2", "bos_token_id": 0}
    return Layer(Checkpoint("copier", config, first, vocab, None, read_mlp=no_mlp))
