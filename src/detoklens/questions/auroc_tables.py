"""The tables of `Auroc`: per query token, per head, beside their controls, precision, and single tokens' curves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from detoklens.errors import TokenError
from detoklens.kernels.ranking import (
    AUROC,
    AVERAGE_PRECISION,
    CHANCE_AVERAGE_PRECISION,
    CHANCE_PRECISION_AT_K,
    PRECISION_AT_K,
)
from detoklens.measures.auroc import (
    Measures,
    Positives,
    beside_controls,
    head_means,
    mean_over_seen,
    roc_curves,
)
from detoklens.measures.token_text import token_texts
from detoklens.questions.auroc_schemas import (
    AUROC_BY_HEAD,
    AUROC_BY_TOKEN,
    AUROC_CONTROLS,
    GLANCE,
    PRECISION_BY_HEAD,
    PRECISION_BY_TOKEN,
    ROC_POINTS,
)
from detoklens.scores.affinity import Affinity
from detoklens.scores.layer import Layer
from detoklens.tables.rendering import sparkline

CURVE_WIDTH = 32  # characters of a curve in a line of text
WITH_INTERVALS = (
    "auroc",
    "shuffled_queries",
    "permuted_keys",
    "within_class",
    "frequency",
    "above_null",
    "above_within_class",
    "above_frequency",
)
MATCHED_COLUMNS = {
    "matched": "auroc",
    "matched_null": "null",
    "matched_above_null": "above_null",
    "matched_frequency": "frequency",
}


def auroc_tables(
    layer: Layer, measured: Measures, heads: Sequence[int], positives: Positives, k: int, resamples: int, seed: int
) -> dict[str, pl.DataFrame]:
    """What was measured: at a glance, then table by table."""
    texts = token_texts(layer, measured.query_tokens)
    by_head = auroc_by_head(measured, heads, positives, resamples, seed)
    controls, precision = controls_by_head(measured, heads, resamples, seed), precision_by_head(measured, heads, k)
    return {
        "auroc": heads_at_a_glance(by_head, controls, precision),
        "auroc_by_token": auroc_by_token(measured, heads, positives, texts),
        "auroc_by_head": by_head,
        "auroc_controls": controls,
        "precision_by_head": precision,
        "precision_by_token": precision_by_token(measured, heads, k, texts),
    }


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


def controls_by_head(measures: Measures, heads: Sequence[int], resamples: int, seed: int) -> pl.DataFrame:
    """Each head's mean AUROC beside its nulls and the frequency baseline; the same with matched negatives."""
    found = beside_controls(measures, resamples, seed)
    columns = {name: found[name] for name in WITH_INTERVALS}
    if measures.matched is not None:
        matched = beside_controls(measures.matched, resamples, seed)
        columns |= {column: matched[name] for column, name in MATCHED_COLUMNS.items()}
    ends = {
        f"{name}{end}": values
        for name, each in columns.items()
        for end, values in (("", each.value), ("_low", each.low), ("_high", each.high))
    }
    unknown = {name: [None] * len(heads) for name in AUROC_CONTROLS.names}
    known: dict[str, object] = {"head": list(heads), "strata": [measures.n_strata] * len(heads)}
    if measures.within_class is not None:
        known["within_class_tokens"] = np.count_nonzero(~np.isnan(measures.within_class), axis=1)
    return AUROC_CONTROLS.frame(unknown | known | ends)


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
    return GLANCE.conform(together)


def _head_and_token(
    measures: Measures, heads: Sequence[int], texts: Sequence[str | None]
) -> dict[str, np.ndarray | pl.Series]:
    queries = measures.query_tokens
    return {
        "head": np.repeat(np.asarray(heads, np.int64), len(queries)),
        "token_id": np.tile(queries, len(heads)),
        "token": pl.concat([pl.Series(texts, dtype=pl.String)] * len(heads)),
    }


def roc_points(
    layer: Layer, affinity: Affinity, heads: Sequence[int], positives: Positives, tokens: Sequence[int]
) -> pl.DataFrame:
    """The curves of some query tokens in every head, token after token."""
    texts = token_texts(layer, tokens)
    curves = [_token_points(affinity, heads, positives, *named) for named in zip(tokens, texts, strict=True)]
    return pl.concat(curves)


def _token_points(
    affinity: Affinity, heads: Sequence[int], positives: Positives, token: int, text: str | None
) -> pl.DataFrame:
    size = int(positives.sizes[token])
    if not 0 < size < positives.vocab_size:
        raise TokenError(
            f"token {token} ({text!r}) has {size} positives among {positives.vocab_size} keys, so no curve; "
            "ask about a token that follows some tokens and not others"
        )
    curves = roc_curves(affinity, positives, token)
    columns = {name: np.concatenate([curve[name] for curve in curves]) for name in curves[0]}
    sizes = [len(curve["threshold"]) for curve in curves]
    named = {"head": np.repeat(np.asarray(heads), sizes), "token_id": np.full(sum(sizes), token)}
    return ROC_POINTS.frame({**named, "token": pl.Series([text] * sum(sizes), dtype=pl.String), **columns})


def areas_under(points: pl.DataFrame) -> pl.DataFrame:
    """The area under each curve: its query token's AUROC."""
    found, wrong = pl.col("true_positive_rate"), pl.col("false_positive_rate")
    area = ((found + found.shift()) / 2 * wrong.diff()).sum()
    return points.group_by("head", "token_id", "token", maintain_order=True).agg(area=area)


def curves_at_a_glance(points: pl.DataFrame) -> pl.DataFrame:
    """One row a curve: its area, and its course in a line of text."""
    curves = points.group_by("head", "token_id", maintain_order=True).agg("false_positive_rate", "true_positive_rate")
    drawn = [_drawn(wrong, found) for wrong, found in curves.select(pl.nth(2, 3)).iter_rows()]
    shown = areas_under(points).with_columns(curve=pl.Series(drawn, dtype=pl.String))
    return shown.drop("token" if points["token"].has_nulls() else "token_id")


def _drawn(false_positive_rate: Sequence[float], true_positive_rate: Sequence[float]) -> str:
    places = np.linspace(0, 1, CURVE_WIDTH)
    return sparkline(np.interp(places, false_positive_rate, true_positive_rate).tolist(), CURVE_WIDTH)
