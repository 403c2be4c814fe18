"""Tᵉᵉ of random tokens, self-match, and the share of variance common to all queries (Figure 2B, appendix)."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from detoklens.errors import RangeError
from detoklens.measures.ranking import HeadScores, pair_ranks
from detoklens.progress import Watcher, unwatched
from detoklens.scores.affinity import Affinity


def same_keys_shares(affinity: Affinity) -> Float[np.ndarray, "head"]:
    """The share of Tᵉᵉ's variance over keys that is common to all queries; NaN if all keys have the same score."""
    shares = np.full(affinity.n_heads, np.nan)
    for head, (query, key) in enumerate(affinity.heads()):
        queries, covariance = query.astype(np.float64), _key_covariance(key)
        mean, moments = queries.mean(axis=0), queries.T @ queries / len(queries)
        whole = float(np.einsum("de,de->", moments, covariance))
        if whole > 0:
            shares[head] = mean @ covariance @ mean / whole
    return shares


def self_match_scores(affinity: Affinity) -> Float[np.ndarray, "head token"]:
    """The z-score of Tᵉᵉ[i, i] in row i, for each head and token; NaN if all keys of the row have the same score."""
    scores = np.full((affinity.n_heads, affinity.vocab_size), np.nan)
    for head, (query, key) in enumerate(affinity.heads()):
        queries, keys = query.astype(np.float64), key.astype(np.float64)
        above_mean = np.einsum("td,td->t", queries, keys - keys.mean(axis=0))
        variance = np.einsum("td,td->t", queries @ _key_covariance(key), queries)
        np.divide(above_mean, np.sqrt(variance), out=scores[head], where=variance > 0)
    return scores


def _key_covariance(key: Float[np.ndarray, "token d_head"]) -> Float[np.ndarray, "d_head d_head"]:
    keys = key.astype(np.float64)
    keys -= keys.mean(axis=0)
    return np.asarray(keys.T @ keys / len(keys))


def draw_tokens(vocab_size: int, size: int, seed: int) -> Int[np.ndarray, "query"]:
    """Uniformly random distinct tokens, sorted by id."""
    if not min(2, vocab_size) <= size <= vocab_size:
        raise RangeError(f"can't sample {size} tokens from a vocabulary of {vocab_size}; choose 2 to {vocab_size}")
    return np.sort(np.random.default_rng(seed).choice(vocab_size, size, replace=False))


def drawn_scores(affinity: Affinity, ids: Int[np.ndarray, "query"]) -> Float[np.ndarray, "head query key"]:
    """Tᵉᵉ of all pairs of the sampled tokens."""
    return np.stack([HeadScores.of(key[ids]).rows(query[ids]) for query, key in affinity.heads()])


def identical_tokens(
    affinity: Affinity,
    ids: Int[np.ndarray, "query"],
    drawn: Float[np.ndarray, "head query key"],
    watch: Watcher = unwatched,
) -> dict[str, Float[np.ndarray, "head"]]:
    """The range of the sampled scores, and how the identical token ranks among them and among all keys."""
    diagonal = np.diagonal(drawn, axis1=1, axis2=2).astype(np.float64)
    others, pairs = drawn.sum(axis=(1, 2), dtype=np.float64) - diagonal.sum(axis=1), len(ids) * (len(ids) - 1)
    ranks = pair_ranks(affinity, ids, ids[None], watch)[0][0]
    return {
        "minimum": drawn.min(axis=(1, 2)),
        "maximum": drawn.max(axis=(1, 2)),
        "diagonal_mean": diagonal.mean(axis=1),
        "other_mean": others / pairs if pairs else np.full(len(drawn), np.nan),
        "diagonal_share": (drawn.argmax(axis=2) == np.arange(len(ids))).mean(axis=1),
        "self_match": self_match_scores(affinity)[:, ids].mean(axis=1),
        "self_first": (ranks == 1).mean(axis=1),
        "self_median_rank": np.median(ranks, axis=1),
        "same_keys": same_keys_shares(affinity),
    }
