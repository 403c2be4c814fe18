"""What AUROC should be: scikit-learn on the same float32 scores, one query token at a time."""

from __future__ import annotations

from collections import Counter

import numpy as np
from sklearn.metrics import roc_auc_score

from detoklens.corpus.counts import Counts
from detoklens.measures.positives import Positives
from detoklens.measures.ranking import scores_of
from detoklens.scores.affinity import Affinity


def random_affinity(n_heads: int, vocab_size: int, d_head: int, seed: int, whole: bool = False) -> Affinity:
    """Random factors; of small whole numbers, so that many scores tie, where asked."""
    random = np.random.default_rng(seed)
    query, key = random.standard_normal((2, n_heads, vocab_size, d_head)).astype(np.float32)
    return Affinity(np.round(query), np.round(key)) if whole else Affinity(query, key)


def random_positives(vocab_size: int, seed: int, share: float = 0.2) -> Positives:
    """Random pairs; some query tokens have none, one has every key."""
    random = np.random.default_rng(seed)
    right = random.random((vocab_size, vocab_size)) < share * random.random((vocab_size, 1))
    right[random.integers(vocab_size)] = False
    right[random.integers(vocab_size)] = True
    keys = np.nonzero(right)[1].astype(np.uint32)
    indptr = np.concatenate([[0], np.cumsum(right.sum(axis=1))])
    return Positives(indptr, keys, random.integers(1, 1000, len(keys)))


def random_counts(vocab_size: int, seed: int) -> np.ndarray:
    """Token counts from never to often."""
    return np.random.default_rng(seed).zipf(1.5, vocab_size).clip(max=10**6) - 1


def auroc_of(scores: np.ndarray, keys: np.ndarray, weights: np.ndarray) -> float:
    """scikit-learn's weighted AUROC; NaN where it has none."""
    if not 0 < len(keys) < len(scores):
        return np.nan
    right, weight = np.zeros(len(scores)), np.ones(len(scores))
    right[keys], weight[keys] = 1, weights
    return float(roc_auc_score(right, scores, sample_weight=weight))


def auroc_table(affinity: Affinity, positives: Positives, tokens: np.ndarray | None = None) -> np.ndarray:
    """head × query token."""
    tokens = np.arange(positives.vocab_size) if tokens is None else tokens
    scores = {token: scores_of(affinity, token) for token in tokens}
    rows = [
        [auroc_of(scores[token][head], *positives.of(token)) for token in tokens] for head in range(affinity.n_heads)
    ]
    return np.array(rows)


def random_bigrams() -> tuple[Counter, Counts]:
    """Some thousand pairs (suffix, prefix) of thirty tokens, as a Counter and as counts."""
    random = np.random.default_rng(0)
    pairs = Counter(map(tuple, (30 * random.random((4000, 2)) ** 2).astype(int).tolist()))
    suffixes, prefixes = np.array(list(pairs), np.uint32).T
    return pairs, Counts.from_arrays(np.ones(30, np.int64), suffixes, prefixes, np.array(list(pairs.values())))


def as_dict(positives: Positives) -> dict[tuple[int, int], int]:
    """The weight of each pair (query, key)."""
    queries = np.repeat(np.arange(positives.vocab_size), positives.sizes)
    pairs = zip(queries.tolist(), positives.keys.tolist(), strict=True)
    return dict(zip(pairs, positives.weights.tolist(), strict=True))
