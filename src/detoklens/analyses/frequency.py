"""Do rare tokens assert themselves, and do their embeddings vary more (Figures 5 and 6 left, section 6.3)?

    T^e[h, j] = q_b[h] · K_e[h, j] / σ_j        σ_j averaged over positions

Spearman's correlation is Pearson's of the ranks, ties sharing their mean rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
import polars as pl
from jaxtyping import Float, Int

from detoklens.analyses.token_text import token_texts
from detoklens.scores.layer import Layer, TokenScale
from detoklens.tables.frequency import EMBEDDING_VARIANCE, FREQUENCY_BY_HEAD, FREQUENCY_BY_TOKEN, SELF_ASSERTION

if TYPE_CHECKING:
    from detoklens.corpus.counts import Counts

Unseen = Literal["published", "include", "exclude"]
"""Do tokens that the corpus never shows count, with count 0? As published: for T^e they do, for Var(e) they do not."""


def self_assertion(layer: Layer, scale: TokenScale = "mean") -> Float[np.ndarray, "head token"]:
    """T^e of every token."""
    asserted = np.einsum("hd,htd->ht", layer.factors.query_bias, layer.factors.key_token, optimize=True)
    return asserted / layer.token_scale(scale)


def frequency_by_head(
    layer: Layer,
    counts: Counts | None,
    *,
    heads: Sequence[int] | None = None,
    scale: TokenScale = "mean",
    unseen: Unseen = "published",
) -> pl.DataFrame:
    """How does T^e go with the token's count, head by head? Without counts, its spread alone."""
    heads = list(range(layer.n_heads)) if heads is None else list(heads)
    layer.check_heads(heads)
    scores = self_assertion(layer, scale)[heads].astype(np.float64)
    tokens = _tokens(layer, counts, include_unseen=unseen != "exclude")
    frequency = None if counts is None else counts.tokens[tokens]
    return FREQUENCY_BY_HEAD.frame(
        {
            "head": heads,
            "tokens": [len(tokens)] * len(heads),
            "spearman": [spearman(row[tokens], frequency) for row in scores],
            "slope": [_slope(row[tokens], frequency) for row in scores],
            "minimum": scores.min(axis=1),
            "maximum": scores.max(axis=1),
            "standard_deviation": scores.std(axis=1),
        }
    )


def self_assertion_by_token(
    layer: Layer, counts: Counts | None, *, heads: Sequence[int] | None = None, scale: TokenScale = "mean"
) -> pl.DataFrame:
    """T^e of every token beside its count, head by head."""
    heads = list(range(layer.n_heads)) if heads is None else list(heads)
    layer.check_heads(heads)
    frequency = _counts_or_null(layer, counts)
    return SELF_ASSERTION.frame(
        {
            "head": np.repeat(np.asarray(heads), layer.vocab_size),
            "token_id": np.tile(np.arange(layer.vocab_size), len(heads)),
            "count": pl.concat([frequency] * len(heads)),
            "score": self_assertion(layer, scale)[heads].ravel(),
        }
    )


def embedding_variance(layer: Layer, counts: Counts | None, *, unseen: Unseen = "published") -> pl.DataFrame:
    """How does Var(e) go with the count, and what becomes of the norms when LayerNorm divides by σ? One row."""
    variance = layer.scales.token_variance.astype(np.float64)
    norms = embedding_norms(layer)
    tokens = _tokens(layer, counts, include_unseen=unseen == "include")
    covariance = layer.scales.mean_absolute_covariance()
    return EMBEDDING_VARIANCE.frame(
        {
            "tokens": [layer.vocab_size],
            "seen_tokens": [None if counts is None else np.count_nonzero(counts.tokens)],
            "spearman_tokens": [len(tokens)],
            "spearman": [spearman(variance[tokens], None if counts is None else counts.tokens[tokens])],
            "mean_variance": [variance.mean()],
            "norm_variance": [norms.var()],
            "divided_norm_variance": [_divided(norms, layer).var()],
            "mean_absolute_covariance": [covariance],
            "variance_to_covariance": [variance.mean() / covariance if covariance > 0 else None],
        }
    )


def frequency_by_token(layer: Layer, counts: Counts | None) -> pl.DataFrame:
    """Each token's count, Var(e), norm before and after division, and σ."""
    norms = embedding_norms(layer)
    return FREQUENCY_BY_TOKEN.frame(
        {
            "token_id": np.arange(layer.vocab_size),
            "token": pl.Series(token_texts(layer, range(layer.vocab_size)), dtype=pl.String),
            "count": _counts_or_null(layer, counts),
            "variance": layer.scales.token_variance,
            "norm": norms,
            "divided_norm": _divided(norms, layer),
            "mean_scale": layer.token_scale("mean"),
        }
    )


def embedding_norms(layer: Layer) -> Float[np.ndarray, "token"]:
    """|e| of every token."""
    embeddings = layer.weights.token_embeddings
    return np.sqrt(np.einsum("td,td->t", embeddings, embeddings, dtype=np.float64))


def _divided(norms: Float[np.ndarray, "token"], layer: Layer) -> Float[np.ndarray, "token"]:
    """|e / σ(e)|; undefined where σ is 0."""
    scales = layer.scales.bare_tokens()
    return np.divide(norms, scales, out=np.full(len(norms), np.nan), where=scales > 0)


def spearman(values: Float[np.ndarray, "token"], counts: Int[np.ndarray, "token"] | None) -> float | None:
    """Spearman's correlation of the values with the counts; None where one of them does not vary."""
    from scipy.stats import rankdata

    if counts is None or len(counts) < 2 or np.ptp(values) == 0 or np.ptp(counts) == 0:
        return None
    return float(np.corrcoef(rankdata(values), rankdata(counts))[0, 1])


def _slope(values: Float[np.ndarray, "token"], counts: Int[np.ndarray, "token"] | None) -> float | None:
    """The slope of the values over log10(count + 1), by least squares."""
    if counts is None or len(counts) < 2 or np.ptp(counts) == 0:
        return None
    magnitude = np.log10(counts + 1.0)
    magnitude -= magnitude.mean()
    return float(magnitude @ values / (magnitude @ magnitude))


def _tokens(layer: Layer, counts: Counts | None, include_unseen: bool) -> Int[np.ndarray, "token"]:
    if counts is None or include_unseen:
        return np.arange(layer.vocab_size)
    return np.flatnonzero(counts.tokens)


def _counts_or_null(layer: Layer, counts: Counts | None) -> pl.Series:
    return pl.Series([None] * layer.vocab_size if counts is None else counts.tokens, dtype=pl.Int64)
