"""Correlate Tᵉ and the variance of token embeddings with frequency (the paper's Figures 5 and 6 left, section 6.3).

    Tᵉ[h, j] = q_b[h] · K_e[h, j] / σ_j        σ_j averaged over positions

With rotary positions, Tᵉ is taken at one offset, and q_b may be the mean query (see `scores.terms`).

Spearman's correlation is Pearson's correlation of the ranks; ties share their mean rank.

The control is a random query bias: the same keys with a query of random direction. Embeddings themselves carry
frequency (rare tokens are shorter, or lie apart), so random directions correlate with it, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy.stats import rankdata

from detoklens.measures.chance import draws_for, holm, tail_probability
from detoklens.scores.factors import Mean
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
    """ρ of random query biases with each head's keys; NaN if the head's ρ is undefined."""

    low: Float[np.ndarray, "head"]
    high: Float[np.ndarray, "head"]
    p: Float[np.ndarray, "head"]
    """Share of random biases with a |ρ| as large, adjusted for the number of heads (Holm)."""


MOST_TOKENS = 4096  # in the control and in the ρ it is compared with; larger vocabularies are sampled


def beside_random_biases(
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
    """The middle 95 % of ρ over random query biases, and how often they reach each head's ρ.

    `scores` are Tᵉ in all heads; `counts` belong to the `tokens` in the correlation.

    Directions are drawn isotropically in the head's query space. This null is exact for a head whose bias is
    independent of its keys, as with random weights, for any embeddings. The covariance of the head's own queries would
    not be: it depends on the same embeddings as the keys, so the null would share what is tested. An offset rotates the
    bias, which does not change an isotropic distribution.
    """
    low, high, p = (np.full(len(scores), np.nan) for _ in range(3))
    if counts is None:
        return RandomBiases(low, high, p)
    random = np.random.default_rng(seed)
    if len(tokens) > MOST_TOKENS:
        drawn = np.sort(random.choice(len(tokens), MOST_TOKENS, replace=False))
        tokens, counts = tokens[drawn], counts[drawn]
    affinity, by_keys = layer.token_affinity(scale, offset=offset, mean=mean), dict[int, np.ndarray]()
    ranks = _unit_ranks(counts[None].astype(np.float64))[0]
    for head, asserted in enumerate(scores):
        correlation = spearman(asserted[tokens], counts)
        if correlation is None:
            continue
        own = head if affinity.own_keys is None else affinity.own_keys[head]
        if own not in by_keys:
            keys = affinity.key_of(head)[tokens]
            biases = random.normal(size=(draws_for(len(scores)), keys.shape[1])).astype(keys.dtype)
            by_keys[own] = np.concatenate([_unit_ranks(part @ keys.T) @ ranks for part in np.array_split(biases, 16)])
        low[head], high[head] = np.quantile(by_keys[own], [0.025, 0.975])
        p[head] = tail_probability(abs(correlation), np.abs(by_keys[own]))
    return RandomBiases(low, high, holm(p))


def _unit_ranks(values: Float[np.ndarray, "row token"]) -> Float[np.ndarray, "row token"]:
    """Centred ranks of length 1, whose product is Spearman's correlation; 0 for constant rows."""
    order = np.argsort(values, axis=1)
    if (np.diff(np.take_along_axis(values, order, axis=1), axis=1) == 0).any():
        ranks = rankdata(values, axis=1)  # ties share their mean rank; three times slower
    else:
        ranks = np.empty(values.shape)
        np.put_along_axis(ranks, order, np.arange(values.shape[1], dtype=np.float64)[None], axis=1)
    ranks -= ranks.mean(axis=1, keepdims=True)
    length = np.linalg.norm(ranks, axis=1, keepdims=True)
    return np.divide(ranks, length, out=np.zeros_like(ranks), where=length > 0)


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
    return float(np.corrcoef(rankdata(values), rankdata(counts))[0, 1])


def slope(values: Float[np.ndarray, "token"], counts: Int[np.ndarray, "token"] | None) -> float | None:
    """Least-squares slope of the values over log10(count + 1)."""
    if counts is None or len(counts) < 2 or np.ptp(counts) == 0:
        return None
    magnitude = np.log10(counts + 1.0)
    magnitude -= magnitude.mean()
    return float(magnitude @ values / (magnitude @ magnitude))
