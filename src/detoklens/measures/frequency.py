"""Correlate Tᵉ and the variance of token embeddings with frequency (the paper's Figures 5 and 6 left, section 6.3).

    Tᵉ[h, j] = q_b[h] · K_e[h, j] / σ_j        σ_j averaged over positions

With rotary positions, Tᵉ is taken at one offset, and q_b may be the mean query (see `scores.terms`).

Spearman's correlation is Pearson's correlation of the ranks; ties share their mean rank.

The control is a random query bias: the same keys with a query of random direction. Embeddings themselves encode
frequency (rare tokens are shorter, or lie in a separate region), so random directions correlate with it, too. ρ then
saturates: a bias that points exactly at frequency has barely a larger ρ than many random ones. Its slope over
log10(count + 1) does not saturate: slope = b · g, with g the slopes of the key dimensions, so for a random direction of
b in d dimensions cos²(b, g) has a Beta(1/2, (d − 1)/2) distribution, which gives p in closed form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.special import betaincc

from detoklens.kernels.ranking import rank_correlations
from detoklens.measures.chance import holm
from detoklens.scores.factors import Mean, key_head_of, rotated_by_offset
from detoklens.scores.layer import Layer, TokenScale


def self_assertion(
    layer: Layer,
    heads: Sequence[int] | None = None,
    scale: TokenScale = "mean",
    *,
    offset: int = 1,
    mean: Mean = None,
) -> Float[np.ndarray, "head token"]:
    """Tᵉ of every token, in all heads or the given ones."""
    if layer.positions != "learned":
        return layer.token_assertion(scale, heads, offset=offset, mean=mean)
    heads = range(layer.n_heads) if heads is None else heads
    asserted = [np.einsum("d,td->t", layer.folded.query_bias[head], layer.token_factors(head).key) for head in heads]
    return np.stack(asserted) / layer.token_scale(scale)


@dataclass(frozen=True)
class RandomBiases:
    """What random query biases give with each head's keys; NaN if the head's ρ is undefined."""

    low: Float[np.ndarray, "head"]
    high: Float[np.ndarray, "head"]
    """Ends of the middle 95 % of their ρ; symmetric, since the opposite of a bias is as likely and has −ρ."""
    p: Float[np.ndarray, "head"]
    """Probability of a slope as steep with the same length of the bias, adjusted for the number of heads (Holm)."""


MOST_TOKENS = 4096  # for the range of ρ; larger vocabularies are sampled
DRAWS = 4999
"""A range of 95 % then holds 94.4 to 95.6 % of all random biases (two standard deviations): verdicts depend on the seed
only for a ρ that is closer to its end than that."""


def compare_with_random_biases(
    layer: Layer,
    scores: Float[np.ndarray, "head token"],
    counts: Int[np.ndarray, "chosen"] | None,
    tokens: Int[np.ndarray, "chosen"],
    scale: TokenScale = "mean",
    *,
    offset: int = 1,
    mean: Mean = None,
    seed: int = 0,
) -> RandomBiases:
    """The range of ρ over random query biases, and how probable each head's slope is with one.

    `scores` are Tᵉ in all heads; `counts` belong to the `tokens` in the correlation.

    Directions are drawn isotropically in the head's query space. This null is exact for a head whose bias is
    independent of its keys, as with random weights, for any embeddings. The covariance of the head's own queries would
    not be: it depends on the same embeddings as the keys, so the null would share what is tested. An offset rotates the
    bias, which does not change an isotropic distribution.
    """
    low, high, p = (np.full(len(scores), np.nan) for _ in range(3))
    if counts is None:
        return RandomBiases(low, high, p)
    random, sampled = np.random.default_rng(seed), np.arange(len(tokens))
    if len(tokens) > MOST_TOKENS:
        sampled = np.sort(random.choice(len(tokens), MOST_TOKENS, replace=False))
    all_keys, by_keys = layer.token_keys(scale, mean=mean), dict[int, float]()
    ranks = mean_ranks(counts[sampled]) - (len(sampled) + 1) / 2
    length = np.linalg.norm(ranks)
    ranks = ranks / length if length > 0 else ranks
    biases = rotated_by_offset(layer.weights, layer.common_part(mean).query, offset).astype(np.float64)
    for head, asserted in enumerate(scores):
        if spearman(asserted[tokens], counts) is None:
            continue
        own = key_head_of(head, layer.weights)
        keys = all_keys[own]
        if own not in by_keys:
            drawn = random.normal(size=(DRAWS, keys.shape[1])).astype(keys.dtype)
            seen = keys[tokens[sampled]]
            parts = (part @ seen.T for part in np.array_split(drawn, 80))
            found = [rank_correlations(scored, np.argsort(scored, axis=1), ranks) for scored in parts]
            by_keys[own] = np.quantile(np.abs(np.concatenate(found)), 0.95)
        low[head], high[head] = -by_keys[own], by_keys[own]
        p[head] = _alignment_probability(biases[head], slope(keys[tokens].astype(np.float64), counts))
    return RandomBiases(low, high, holm(p))


def mean_ranks(values: Float[np.ndarray, "token"]) -> Float[np.ndarray, "token"]:
    """Ranks from 1; ties share their mean rank."""
    _, places, sizes = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(sizes) - (sizes - 1) / 2)[places]


def _alignment_probability(bias: Float[np.ndarray, "d_head"], slopes: Float[np.ndarray, "d_head"]) -> float:
    """The probability that a random direction has as large a |cosine| with the slopes as the bias has."""
    length = np.linalg.norm(bias) * np.linalg.norm(slopes)
    if len(bias) < 2 or length == 0:
        return 1.0
    return float(betaincc(0.5, (len(bias) - 1) / 2, min(1.0, (bias @ slopes / length) ** 2)))


def embedding_norms(layer: Layer) -> Float[np.ndarray, "token"]:
    """|e| of every token."""
    embeddings = layer.weights.token_embeddings
    return np.sqrt(np.einsum("td,td->t", embeddings, embeddings, dtype=np.float64))


def divided_norms(layer: Layer) -> Float[np.ndarray, "token"]:
    """|e / σ(e)|; undefined where σ is 0."""
    norms, scales = embedding_norms(layer), layer.scales.bare_tokens()
    return np.divide(norms, scales, out=np.full(len(norms), np.nan), where=scales > 0)


def spearman(values: Float[np.ndarray, "token"], counts: Int[np.ndarray, "token"] | None) -> float | None:
    """Spearman's correlation of values and counts; None if either is constant."""
    if counts is None or len(counts) < 2 or np.ptp(values) == 0 or np.ptp(counts) == 0:
        return None
    return float(np.corrcoef(mean_ranks(values), mean_ranks(counts))[0, 1])


def slope(values: Float[np.ndarray, "token *more"], counts: Int[np.ndarray, "token"] | None) -> Any:
    """Least-squares slope of the values over log10(count + 1); of each column for a matrix, None if undefined."""
    if counts is None or len(counts) < 2 or np.ptp(counts) == 0:
        return None
    magnitude = np.log10(counts + 1.0)
    magnitude -= magnitude.mean()
    return magnitude @ values / (magnitude @ magnitude)
