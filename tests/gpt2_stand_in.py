"""The real GPT-2 small's positions and first attention layer, with stand-in token embeddings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from detoklens.scores.layer import Layer
from detoklens.weights.first_layer import FirstLayer
from tests.layers import as_layer

VOCABULARY = 50257


def gpt2_positions(folder: Path, n_tokens: int = 2000) -> Layer:
    """The real weights beside tokens of random directions with that many of the real norms, by seed 0.

    What needs σ alone is right to about 1 %; what needs a token's direction has no meaning.
    """
    tensors, random = load_file(folder / "model.safetensors"), np.random.default_rng(0)
    norms = random.choice(np.load(folder / "token_norms.npy"), n_tokens, replace=False)
    tokens = random.normal(size=(n_tokens, 768))
    tokens -= tokens.mean(axis=1, keepdims=True)
    weights = np.split(tensors["h.0.attn.c_attn.weight"].reshape(768, 36, 64), 3, axis=1)
    biases = np.split(tensors["h.0.attn.c_attn.bias"].reshape(36, 64), 3)
    names = ("query", "key", "value")
    return as_layer(
        FirstLayer(
            token_embeddings=tokens * (norms / np.linalg.norm(tokens, axis=1))[:, None],
            position_embeddings=tensors["wpe.weight"].astype(np.float64),
            norm_gain=tensors["h.0.ln_1.weight"],
            norm_bias=tensors["h.0.ln_1.bias"],
            norm_epsilon=1e-5,
            **{f"{name}_weight": weight for name, weight in zip(names, weights, strict=True)},
            **{f"{name}_bias": bias for name, bias in zip(names, biases, strict=True)},
            output_weight=tensors["h.0.attn.c_proj.weight"].reshape(12, 64, 768),
            output_bias=tensors["h.0.attn.c_proj.bias"],
            attention_scale=1 / 8,
        )
    )
