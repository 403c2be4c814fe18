"""A first layer with known position terms: linear Tᵖ, periodic Tᵖᵖ, and a large position 0 or an untrained last one.

Position j holds the pairs ±line, ±cos, ±sin and ±rest, so its mean is 0 and, thanks to `rest`, its variance is the same
everywhere. Keys read line, cos and sin; queries read cos and sin; the query bias points along the line. Tokens have
separate features, so σ depends only on the token and on the position's variance. Then, without σ,

    Tᵖ[j] = bias · line_j,     Tᵖᵖ[i, j] = wave² · cos 2π(i − j)/period
"""

from __future__ import annotations

import numpy as np

from detoklens.scores.layer import Layer
from detoklens.weights.first_layer import FirstLayer
from tests.layers import as_layer

N_HEADS, D_HEAD, BIAS, TOTAL = 3, 4, 2.0, 9.0


def planted_positions(n_positions: int, steepness: float, period: float, wave: float) -> np.ndarray:
    places = np.arange(n_positions)
    line = steepness * (places / n_positions - 0.5)
    angles = 2 * np.pi * places / period
    rest = np.sqrt(TOTAL - line**2 - wave**2)
    features = np.stack([line, wave * np.cos(angles), wave * np.sin(angles), rest], axis=1)
    return np.concatenate([features, -features, np.zeros((n_positions, 4))], axis=1)


def planted_layer(
    n_positions: int = 300,
    steepness: float = 3.0,
    period: float = 37.0,
    wave: float = 1.5,
    first_times: float = 1.0,
    last_times: float = 1.0,
    seed: int = 0,
) -> Layer:
    """`first_times` multiplies what nobody reads at position 0; `last_times` all of the last position."""
    random = np.random.default_rng(seed)
    positions = planted_positions(n_positions, steepness, period, wave)
    positions[0, [3, 7]] *= first_times
    positions[-1] *= last_times
    halves = random.normal(size=(50, 2))
    tokens = np.concatenate([np.zeros((50, 8)), halves, -halves], axis=1)
    weight = np.zeros((12, N_HEADS, D_HEAD))
    key, query = weight.copy(), weight.copy()
    key[[0, 1, 2], :, [0, 1, 2]] = 1.0
    query[[1, 2], :, [1, 2]] = 1.0
    query_bias = np.tile([BIAS, 0.0, 0.0, 0.0], (N_HEADS, 1))
    return as_layer(
        FirstLayer(
            token_embeddings=tokens,
            position_embeddings=positions,
            norm_gain=np.ones(12),
            norm_bias=np.zeros(12),
            norm_epsilon=1e-5,
            query_weight=query,
            query_bias=query_bias,
            key_weight=key,
            key_bias=np.zeros((N_HEADS, D_HEAD)),
            value_weight=weight,
            value_bias=np.zeros((N_HEADS, D_HEAD)),
            output_weight=weight.transpose(1, 2, 0).copy(),
            output_bias=np.zeros(12),
            attention_scale=D_HEAD**-0.5,
        )
    )
