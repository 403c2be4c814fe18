"""Tᵉᵉ of random tokens, self-match, and the share of variance common to all queries (Figure 2B, appendix)."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from detoklens.errors import RangeError
from detoklens.measures.ranking import ALONE, HeadScores, pair_ranks
from detoklens.parallel import Runner
from detoklens.scores.affinity import Affinity

ROWS = 2048  # tokens at a time in float64: those of a head fit into a processor's cache


def same_keys_shares(affinity: Affinity) -> Float[np.ndarray, "head"]:
    """The share of Tᵉᵉ's variance over keys that is common to all queries; NaN if all keys have the same score."""
    shares = np.full(affinity.n_heads, np.nan)
    for head, (_, covariance) in enumerate(_key_moments(affinity)):
        mean, moments = _moments(affinity.query[head])
        whole = float(np.einsum("de,de->", moments, covariance))
        if whole > 0:
            shares[head] = mean @ covariance @ mean / whole
    return shares


def self_match_scores(
    affinity: Affinity, token_ids: Int[np.ndarray, "query"] | None = None
) -> Float[np.ndarray, "head query"]:
    """The z-score of Tᵉᵉ[i, i] in row i of each head, for all tokens or some; NaN if all keys score the same."""
    ids = np.arange(affinity.vocab_size) if token_ids is None else token_ids
    scores = np.full((affinity.n_heads, len(ids)), np.nan)
    for head, (mean, covariance) in enumerate(_key_moments(affinity)):
        query, key = affinity.query[head], affinity.key_of(head)
        for begin in range(0, len(ids), ROWS):
            rows = slice(begin, begin + ROWS)
            queries, keys = (side[ids[rows]].astype(np.float64) for side in (query, key))
            above_mean = np.einsum("td,td->t", queries, keys - mean)
            variance = np.einsum("td,td->t", queries @ covariance, queries)
            np.divide(above_mean, np.sqrt(variance), out=scores[head, rows], where=variance > 0)
    return scores


def _key_moments(
    affinity: Affinity,
) -> list[tuple[Float[np.ndarray, "d_head"], Float[np.ndarray, "d_head d_head"]]]:
    """The mean and the covariance of every head's keys, computed once for heads that share keys."""
    found = [_moments(key, centred=True) for key in affinity.shared_key]
    return found if affinity.own_keys is None else [found[own] for own in affinity.own_keys]


def _moments(
    vectors: Float[np.ndarray, "token d_head"], centred: bool = False
) -> tuple[Float[np.ndarray, "d_head"], Float[np.ndarray, "d_head d_head"]]:
    """The mean and the second moments, about 0 or about the mean, in float64."""
    blocks = [slice(begin, begin + ROWS) for begin in range(0, len(vectors), ROWS)]
    mean = np.add.reduce([vectors[block].sum(axis=0, dtype=np.float64) for block in blocks]) / len(vectors)
    moments = np.zeros((len(mean), len(mean)))
    for block in blocks:
        some = vectors[block] - mean if centred else vectors[block].astype(np.float64)
        moments += some.T @ some
    return mean, moments / len(vectors)


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
    runner: Runner = ALONE,
) -> dict[str, Float[np.ndarray, "head"]]:
    """The range of the sampled scores, and how the identical token ranks among them and among all keys."""
    diagonal = np.diagonal(drawn, axis1=1, axis2=2).astype(np.float64)
    others, pairs = drawn.sum(axis=(1, 2), dtype=np.float64) - diagonal.sum(axis=1), len(ids) * (len(ids) - 1)
    ranks = pair_ranks(affinity, ids, ids[None], runner)[0][0]
    return {
        "minimum": drawn.min(axis=(1, 2)),
        "maximum": drawn.max(axis=(1, 2)),
        "diagonal_mean": diagonal.mean(axis=1),
        "other_mean": others / pairs if pairs else np.full(len(drawn), np.nan),
        "diagonal_share": (drawn.argmax(axis=2) == np.arange(len(ids))).mean(axis=1),
        "self_match": self_match_scores(affinity, ids).mean(axis=1),
        "self_first": (ranks == 1).mean(axis=1),
        "self_median_rank": np.median(ranks, axis=1),
        "same_keys": same_keys_shares(affinity),
    }
