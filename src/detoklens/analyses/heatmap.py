"""What does T^ee look like for tokens drawn at random, with LayerNorm's division and without (Figure 2B, appendix)?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from jaxtyping import Float, Int

from detoklens.analyses.ranking import pair_ranks
from detoklens.analyses.self_match import self_match_scores
from detoklens.analyses.token_text import token_texts
from detoklens.analyses.watching import Watcher
from detoklens.errors import RangeError
from detoklens.scores.affinity import Affinity
from detoklens.scores.layer import Layer, TokenScale
from detoklens.tables.heatmap import HEATMAP, HEATMAP_BY_HEAD, HEATMAP_TOKENS


@dataclass(frozen=True)
class Heatmap:
    """The drawn tokens, the scores of all their pairs, and what they say of each head."""

    tokens: pl.DataFrame
    scores: pl.DataFrame
    by_head: pl.DataFrame


def heatmap(
    layer: Layer,
    *,
    size: int = 100,
    seed: int = 0,
    heads: Sequence[int] | None = None,
    scale: TokenScale = "mean",
    centred: bool = False,
    watch: Watcher | None = None,
) -> Heatmap:
    """T^ee of `size` tokens drawn without replacement, in the order of their ids, against each other.

    `scale` is the σ of the half with LayerNorm; the other half leaves the division out.
    """
    ids = draw_tokens(layer, size, seed)
    heads = list(range(layer.n_heads)) if heads is None else list(heads)
    layer.check_heads(heads)
    scores, by_head = [], []
    for divided in (True, False):
        affinity = layer.token_affinity(scale if divided else None, centred).of_heads(heads)
        drawn = affinity.query[:, ids] @ affinity.key[:, ids].transpose(0, 2, 1)
        scores.append(_long(heads, divided, ids, drawn))
        by_head.append(_by_head(heads, divided, ids, drawn, affinity, watch))
    tokens = {"place": np.arange(len(ids)), "token_id": ids, "token": token_texts(layer, ids)}
    return Heatmap(
        HEATMAP_TOKENS.frame(tokens), pl.concat(scores), pl.concat(by_head).sort("head", maintain_order=True)
    )


def draw_tokens(layer: Layer, size: int, seed: int) -> Int[np.ndarray, "query"]:
    """Tokens drawn evenly from the vocabulary, each at most once."""
    if not 2 <= size <= layer.vocab_size:
        raise RangeError(f"{size} tokens were asked for; from this vocabulary 2 to {layer.vocab_size} can be drawn")
    return np.sort(np.random.default_rng(seed).choice(layer.vocab_size, size, replace=False))


def _long(
    heads: Sequence[int], divided: bool, ids: Int[np.ndarray, "query"], scores: Float[np.ndarray, "head query key"]
) -> pl.DataFrame:
    """One row a score."""
    head, query, key = (axis.ravel() for axis in np.indices(scores.shape, dtype=np.int32))
    return HEATMAP.frame(
        {
            "head": np.asarray(heads)[head],
            "layer_norm": np.full(scores.size, divided),
            "query_place": query,
            "key_place": key,
            "query_token_id": ids[query],
            "key_token_id": ids[key],
            "score": scores.ravel(),
        }
    )


def _by_head(
    heads: Sequence[int],
    divided: bool,
    ids: Int[np.ndarray, "query"],
    drawn: Float[np.ndarray, "head query key"],
    affinity: Affinity,
    watch: Watcher | None,
) -> pl.DataFrame:
    diagonal = np.diagonal(drawn, axis1=1, axis2=2).astype(np.float64)
    others = drawn.sum(axis=(1, 2), dtype=np.float64) - diagonal.sum(axis=1)
    ranks = pair_ranks(affinity, ids, ids[None], watch)[0][0]
    return HEATMAP_BY_HEAD.frame(
        {
            "head": heads,
            "layer_norm": [divided] * len(heads),
            "minimum": drawn.min(axis=(1, 2)),
            "maximum": drawn.max(axis=(1, 2)),
            "diagonal_mean": diagonal.mean(axis=1),
            "other_mean": others / (len(ids) * (len(ids) - 1)),
            "diagonal_share": (drawn.argmax(axis=2) == np.arange(len(ids))).mean(axis=1),
            "self_match": self_match_scores(affinity)[:, ids].mean(axis=1),
            "self_first": (ranks == 1).mean(axis=1),
            "self_median_rank": np.median(ranks, axis=1),
        }
    )
