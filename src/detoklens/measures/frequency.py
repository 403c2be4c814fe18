"""Do rare tokens assert themselves, and do their embeddings vary more (Figures 5 and 6 left, section 6.3)?

    Tᵉ[h, j] = q_b[h] · K_e[h, j] / σ_j        σ_j averaged over positions

With rotary positions it is that at one offset, and q_b may be the mean query (see `scores.terms`).

Spearman's correlation is Pearson's of the ranks, ties sharing their mean rank.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from detoklens.scores.common_part import Mean
from detoklens.scores.layer import Layer, TokenScale


def self_assertion(
    layer: Layer,
    heads: Sequence[int] | None = None,
    scale: TokenScale = "mean",
    *,
    offset: int = 1,
    mean: Mean = None,
) -> Float[np.ndarray, "head token"]:
    """Tᵉ of every token, in all heads or some."""
    if layer.positions != "learned":
        return layer.token_assertion(scale, heads, offset=offset, mean=mean)
    heads = range(layer.n_heads) if heads is None else heads
    asserted = [np.einsum("d,td->t", layer.folded.query_bias[head], layer.token_factors(head).key) for head in heads]
    return np.stack(asserted) / layer.token_scale(scale)


def embedding_norms(layer: Layer) -> Float[np.ndarray, "token"]:
    """|e| of every token."""
    embeddings = layer.weights.token_embeddings
    return np.sqrt(np.einsum("td,td->t", embeddings, embeddings, dtype=np.float64))


def divided_norms(layer: Layer) -> Float[np.ndarray, "token"]:
    """|e / σ(e)|; undefined where σ is 0."""
    norms, scales = embedding_norms(layer), layer.scales.bare_tokens()
    return np.divide(norms, scales, out=np.full(len(norms), np.nan), where=scales > 0)


def spearman(values: Float[np.ndarray, "token"], counts: Int[np.ndarray, "token"] | None) -> float | None:
    """Spearman's correlation of the values with the counts; None where one of them does not vary."""
    from scipy.stats import rankdata

    if counts is None or len(counts) < 2 or np.ptp(values) == 0 or np.ptp(counts) == 0:
        return None
    return float(np.corrcoef(rankdata(values), rankdata(counts))[0, 1])


def slope(values: Float[np.ndarray, "token"], counts: Int[np.ndarray, "token"] | None) -> float | None:
    """The slope of the values over log10(count + 1), by least squares."""
    if counts is None or len(counts) < 2 or np.ptp(counts) == 0:
        return None
    magnitude = np.log10(counts + 1.0)
    magnitude -= magnitude.mean()
    return float(magnitude @ values / (magnitude @ magnitude))
