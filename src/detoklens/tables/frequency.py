"""Do rare tokens assert themselves, and do their embeddings vary more?"""

from __future__ import annotations

import polars as pl

from detoklens.tables.schema import HEAD, Column, Schema
from detoklens.tables.tokens import TOKEN, TOKEN_ID

COUNT = Column("count", pl.Int64, "how often the token occurs in the corpus; null without counts")

FREQUENCY_BY_HEAD = Schema(
    "frequency_by_head",
    "Does a head prefer rare or frequent tokens, whoever asks?",
    (
        HEAD,
        Column("tokens", pl.Int32, "tokens that the correlation is taken over"),
        Column("spearman", pl.Float64, "Spearman correlation of T^e (σ averaged over positions) with the count"),
        Column("slope", pl.Float64, "change of T^e for a token ten times as frequent: slope over log10(count + 1)"),
        Column("minimum", pl.Float64, "smallest T^e of a token"),
        Column("maximum", pl.Float64, "largest T^e of a token"),
        Column("standard_deviation", pl.Float64, "spread of T^e over the tokens"),
    ),
)

EMBEDDING_VARIANCE = Schema(
    "embedding_variance",
    "How does the variance of token embeddings go with frequency, and what does LayerNorm make of it?",
    (
        Column("tokens", pl.Int32, "tokens of the vocabulary"),
        Column("seen_tokens", pl.Int32, "tokens that occur in the corpus"),
        Column("spearman_tokens", pl.Int32, "tokens that the correlation is taken over"),
        Column("spearman", pl.Float64, "Spearman correlation of Var(e) with the count"),
        Column("mean_variance", pl.Float64, "mean Var(e)"),
        Column("norm_variance", pl.Float64, "variance over tokens of |e|"),
        Column(
            "divided_norm_variance",
            pl.Float64,
            "variance over tokens of |e / σ(e)|, as if LayerNorm met the bare token",
        ),
        Column("mean_absolute_covariance", pl.Float64, "mean |Cov(e, p)| over all tokens and positions"),
        Column("variance_to_covariance", pl.Float64, "mean Var(e) divided by mean |Cov(e, p)|"),
    ),
)

FREQUENCY_BY_TOKEN = Schema(
    "frequency_by_token",
    "How frequent is each token, and how large is its embedding?",
    (
        TOKEN_ID,
        TOKEN,
        COUNT,
        Column("variance", pl.Float64, "Var(e) over the features"),
        Column("norm", pl.Float64, "|e|"),
        Column("divided_norm", pl.Float64, "|e / σ(e)|, as if LayerNorm met the bare token"),
        Column("mean_scale", pl.Float64, "σ(e + p) averaged over positions"),
    ),
)

SELF_ASSERTION = Schema(
    "self_assertion",
    "How strongly does each token assert itself in each head?",
    (HEAD, TOKEN_ID, COUNT, Column("score", pl.Float32, "T^e of the token, σ averaged over positions")),
)
