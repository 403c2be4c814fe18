"""The measures as tables: per query token, per head with intervals, beside the controls, precision, and the heads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from jaxtyping import Float

from detoklens.analyses.auroc.means import head_means
from detoklens.analyses.auroc.measuring import Measures
from detoklens.analyses.auroc.positives import Positives
from detoklens.kernels.ranking import (
    AUROC,
    AVERAGE_PRECISION,
    CHANCE_AVERAGE_PRECISION,
    CHANCE_PRECISION_AT_K,
    PRECISION_AT_K,
)
from detoklens.tables.auroc import (
    AUROC_BY_HEAD,
    AUROC_BY_TOKEN,
    AUROC_CONTROLS,
    PRECISION_BY_HEAD,
    PRECISION_BY_TOKEN,
)


def auroc_by_token(
    measures: Measures, heads: Sequence[int], positives: Positives, texts: Sequence[str | None]
) -> pl.DataFrame:
    """AUROC, number of positives and total weight of each query token in each head."""
    queries = measures.query_tokens
    return AUROC_BY_TOKEN.frame(
        {
            **_head_and_token(measures, heads, texts),
            "auroc": measures.heads[..., AUROC].ravel(),
            "positives": np.tile(positives.sizes[queries], len(heads)),
            "bigrams": np.tile(positives.totals[queries], len(heads)),
        }
    )


def precision_by_token(measures: Measures, heads: Sequence[int], k: int, texts: Sequence[str | None]) -> pl.DataFrame:
    """Average precision and precision at k of each query token in each head."""
    return PRECISION_BY_TOKEN.frame(
        {
            **_head_and_token(measures, heads, texts),
            "average_precision": measures.heads[..., AVERAGE_PRECISION].ravel(),
            "k": np.full(len(heads) * len(measures.query_tokens), k),
            "precision_at_k": measures.heads[..., PRECISION_AT_K].ravel(),
        }
    )


def auroc_by_head(
    measures: Measures, heads: Sequence[int], positives: Positives, resamples: int, seed: int
) -> pl.DataFrame:
    """The three means of each head with their intervals."""
    auroc = measures.heads[..., AUROC]
    means = head_means(auroc, positives.totals[measures.query_tokens], resamples, seed)
    columns: dict[str, np.ndarray] = {}
    for name, interval in (("seen", means.seen), ("all", means.all), ("weighted", means.weighted)):
        columns |= {name: interval.value, f"{name}_low": interval.low, f"{name}_high": interval.high}
    tokens = {
        "tokens": np.full(len(heads), auroc.shape[1]),
        "tokens_seen": np.count_nonzero(~np.isnan(auroc), axis=1),
    }
    return AUROC_BY_HEAD.frame({"head": list(heads), **columns, **tokens})


def controls_by_head(measures: Measures, heads: Sequence[int]) -> pl.DataFrame:
    """Each head's mean AUROC beside its nulls and the frequency baseline."""
    columns = {
        "auroc": mean_over_seen(measures.heads[..., AUROC]),
        "shuffled_queries": _mean_or_nan(measures.shuffled_queries, len(heads)),
        "permuted_keys": _mean_or_nan(measures.permuted_keys, len(heads)),
        "frequency": _mean_or_nan(None if measures.frequency is None else measures.frequency[None], len(heads)),
    }
    nulls = np.fmax(columns["shuffled_queries"], columns["permuted_keys"])
    columns["above_null"] = columns["auroc"] - nulls
    columns["above_frequency"] = columns["auroc"] - columns["frequency"]
    return AUROC_CONTROLS.frame({"head": list(heads), **columns})


def precision_by_head(measures: Measures, heads: Sequence[int], k: int) -> pl.DataFrame:
    """Each head's mean average precision and precision at k, beside what chance gives."""
    means = {
        "average_precision": AVERAGE_PRECISION,
        "chance_average_precision": CHANCE_AVERAGE_PRECISION,
        "precision_at_k": PRECISION_AT_K,
        "chance_precision_at_k": CHANCE_PRECISION_AT_K,
    }
    columns = {name: mean_over_seen(measures.heads[..., measure]) for name, measure in means.items()}
    return PRECISION_BY_HEAD.frame({"head": list(heads), "k": np.full(len(heads), k), **columns})


def heads_at_a_glance(by_head: pl.DataFrame, controls: pl.DataFrame, precision: pl.DataFrame) -> pl.DataFrame:
    """One row a head: its AUROC with both nulls and the baseline, the other means, the precision."""
    together = by_head.join(controls, on="head", maintain_order="left").join(
        precision, on="head", maintain_order="left"
    )
    names = ["head", "seen", "seen_low", "seen_high", "shuffled_queries", "permuted_keys", "frequency"]
    names += ["all", "weighted", "average_precision", "k", "precision_at_k", "tokens_seen"]
    return together.select(names)


def mean_over_seen(values: Float[np.ndarray, "head query"]) -> Float[np.ndarray, "head"]:
    """The mean over the query tokens where the measure is defined; NaN where it is nowhere."""
    defined = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        return np.where(defined, values, 0.0).sum(axis=1) / defined.sum(axis=1)


def _mean_or_nan(values: Float[np.ndarray, "head query measure"] | None, n_heads: int) -> Float[np.ndarray, "head"]:
    if values is None:
        return np.full(n_heads, np.nan)
    return np.broadcast_to(mean_over_seen(values[..., AUROC]), n_heads)


def _head_and_token(
    measures: Measures, heads: Sequence[int], texts: Sequence[str | None]
) -> dict[str, np.ndarray | pl.Series]:
    queries = measures.query_tokens
    return {
        "head": np.repeat(np.asarray(heads, np.int64), len(queries)),
        "token_id": np.tile(queries, len(heads)),
        "token": pl.concat([pl.Series(texts, dtype=pl.String)] * len(heads)),
    }
