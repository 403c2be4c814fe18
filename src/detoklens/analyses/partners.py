"""Which key tokens does a query token look for? Every head's largest T^ee over the vocabulary (Figure 2A, Table 1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from detoklens.analyses.pair_counts import pair_counts
from detoklens.analyses.ranking import top_keys
from detoklens.analyses.token_text import joined_texts, token_texts
from detoklens.errors import RangeError
from detoklens.scores.affinity import Affinity
from detoklens.scores.layer import Layer, TokenScale
from detoklens.tables.partners import PARTNERS

if TYPE_CHECKING:
    from detoklens.corpus.counts import Counts


def partners(
    layer: Layer,
    token_ids: Sequence[int],
    *,
    top: int = 10,
    heads: Sequence[int] | None = None,
    scale: TokenScale = "mean",
    centred: bool = False,
    counts: Counts | None = None,
) -> pl.DataFrame:
    """Which `top` key tokens have the largest T^ee with each of these query tokens?

    `centred` subtracts each key's mean over all query tokens. The column `count` is there only with counts.
    """
    if top < 1:
        raise RangeError(f"the top {top} partners were asked for; at least 1 is needed")
    layer.check_tokens(token_ids)
    heads = range(layer.n_heads) if heads is None else heads
    layer.check_heads(heads)
    affinity = layer.token_affinity(scale, centred).of_heads(list(heads))
    found = pl.concat([_partners_of(affinity, heads, int(query), top) for query in token_ids])
    return _described(layer, found, counts)


def _partners_of(affinity: Affinity, heads: Sequence[int], query: int, top: int) -> pl.DataFrame:
    """One query token's keys, head after head: one row of the vocabulary per head is in memory."""
    scores = affinity.scores(np.array([query]))[:, 0]
    keys = [top_keys(row, top) for row in scores]
    ranks = np.arange(1, len(keys[0]) + 1)
    return pl.DataFrame(
        {
            "head": np.repeat(np.asarray(heads), len(ranks)),
            "query_token_id": np.full(len(heads) * len(ranks), query),
            "rank": np.tile(ranks, len(heads)),
            "key_token_id": np.concatenate(keys),
            "score": np.concatenate([row[best] for row, best in zip(scores, keys, strict=True)]),
        }
    )


def _described(layer: Layer, found: pl.DataFrame, counts: Counts | None) -> pl.DataFrame:
    queries, keys = found["query_token_id"].to_numpy(), found["key_token_id"].to_numpy()
    texts = found.with_columns(
        pl.Series("query_token", token_texts(layer, queries), pl.String),
        pl.Series("key_token", token_texts(layer, keys), pl.String),
        pl.Series("joined", joined_texts(layer, keys, queries), pl.String),
    )
    if counts is None:
        return PARTNERS.without("count").conform(texts)
    return PARTNERS.conform(texts.with_columns(pl.Series("count", pair_counts(counts, keys, queries))))
