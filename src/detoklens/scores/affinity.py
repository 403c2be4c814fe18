"""Tᵉᵉ over the whole vocabulary, as two thin factors that are already divided by σ.

    Tᵉᵉ[h, i, j] = (Q_e[h, i] / σ_i) · (K_e[h, j] / σ_j)

Centring subtracts each key's mean over all query tokens, which removes keys' general popularity. It needs no V × V
array: mean over i of Tᵉᵉ[h, i, j] = (mean over i of Q_e[h, i] / σ_i) · K_e[h, j] / σ_j.

With rotary positions Tᵉᵉ is taken at one offset i − j, by which the queries are rotated. Heads that share keys share
them in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int

from detoklens.errors import CheckpointError
from detoklens.weights.scale import FLOAT64_ADVICE


@dataclass(frozen=True)
class Affinity:
    """Tᵉᵉ of the whole vocabulary in thin form: the score of (query, key) is query · key.

    `own_keys` gives the index of each head's keys if heads share them; None means that every head has its own.
    """

    query: Float[np.ndarray, "head query d_head"]  # of all tokens, or of some
    shared_key: Float[np.ndarray, "key_head token d_head"]
    own_keys: tuple[int, ...] | None = None

    @property
    def n_heads(self) -> int:
        return len(self.query)

    @property
    def vocab_size(self) -> int:
        return self.shared_key.shape[1]

    @property
    def key(self) -> Float[np.ndarray, "head token d_head"]:
        """Every head's keys; a copy if heads share keys, which `key_of` and `heads` avoid."""
        return self.shared_key if self.own_keys is None else self.shared_key[list(self.own_keys)]

    def key_of(self, head: int) -> Float[np.ndarray, "token d_head"]:
        return self.shared_key[head if self.own_keys is None else self.own_keys[head]]

    def heads(self) -> Iterator[tuple[Float[np.ndarray, "query d_head"], Float[np.ndarray, "token d_head"]]]:
        """Each head's queries and keys, as views."""
        for head, query in enumerate(self.query):
            yield query, self.key_of(head)

    def scores(self, token_ids: Int[np.ndarray, "query"]) -> Float[np.ndarray, "head query key"]:
        """Tᵉᵉ of some query tokens against all key tokens."""
        if self.own_keys is None:
            return self.query[:, token_ids] @ self.shared_key.transpose(0, 2, 1)
        return np.stack([query[token_ids] @ key.T for query, key in self.heads()])

    def centred(self) -> Affinity:
        """Subtract each key's mean over all query tokens."""
        mean = self.query.mean(axis=1, keepdims=True, dtype=np.float64).astype(self.query.dtype)
        return replace(self, query=self.query - mean)

    def less_means(self, weights: Float[np.ndarray, "token"]) -> Affinity:
        """Subtract the weighted mean query and key of the vocabulary, in place: a copy of all heads may take a GB."""
        for vectors in (*self.query, *self.shared_key):
            subtract_mean(vectors, weights)
        return self

    def single(self) -> Affinity:
        """Convert to float32, in which keys are ranked."""
        query, key = (side.astype(np.float32, copy=False) for side in (self.query, self.shared_key))
        return replace(self, query=query, shared_key=key)

    def of_tokens(self, token_ids: Int[np.ndarray, "kept"]) -> Affinity:
        """Select some tokens, in order of id and in place, as queries and as keys; their places are their ids."""
        for vectors in (*self.query, *self.shared_key):
            vectors[: len(token_ids)] = vectors[token_ids]
        return replace(self, query=self.query[:, : len(token_ids)], shared_key=self.shared_key[:, : len(token_ids)])

    def of_heads(self, heads: list[int]) -> Affinity:
        if self.own_keys is None:
            return Affinity(self.query[heads], self.shared_key[heads])
        return replace(self, query=self.query[heads], own_keys=tuple(self.own_keys[head] for head in heads))


def subtract_mean(vectors: Float[np.ndarray, "token d_head"], weights: Float[np.ndarray, "token"]) -> None:
    """Subtract the weighted mean of all vectors, in place."""
    vectors -= (weights @ vectors.astype(np.float64)).astype(vectors.dtype)


def token_affinity(
    queries: Iterable[Float[np.ndarray, "query d_head"]],
    key_of: Callable[[int], Float[np.ndarray, "token d_head"]],
    key_heads: Sequence[int],
    scales: Float[np.ndarray, "token"] | None,
    query_ids: Sequence[int] | None = None,
) -> Affinity:
    """Tᵉᵉ of some heads with one σ per token; without scales, Tᵉᵉ without the division. The arrays are new.

    `key_heads` are the keys that each head uses. The queries are those of the tokens `query_ids`, or of all tokens.
    """
    query_scales = scales if scales is None or query_ids is None else scales[list(query_ids)]
    shared = list(dict.fromkeys(key_heads))
    query = _divided(queries, len(key_heads), query_scales, query_ids)
    key = _divided(map(key_of, shared), len(shared), scales, None)
    largest = float(_largest_norm(query)) * float(_largest_norm(key))
    if largest > float(np.finfo(query.dtype).max):
        raise CheckpointError(
            f"Tᵉᵉ can be as large as {largest:.0e}, too large for {query.dtype}: the weights are damaged or unusually "
            f"large; check them{FLOAT64_ADVICE}"
        )
    own_keys = None if len(shared) == len(key_heads) else tuple(map(shared.index, key_heads))
    return Affinity(query, key, own_keys)


def _divided(
    factors: Iterable[Float[np.ndarray, "row d_head"]],
    n_heads: int,
    scales: Float[np.ndarray, "row"] | None,
    token_ids: Sequence[int] | None,
) -> Float[np.ndarray, "head row d_head"]:
    """All heads' factors divided by σ, one head at a time; keys can't be ranked by numbers that are not finite."""
    divided = np.empty((0, 0, 0))
    for head, factor in enumerate(factors):
        if head == 0:
            dtype = factor.dtype if scales is None else np.result_type(factor, scales)
            divided = np.empty((n_heads, *factor.shape), dtype)
        with np.errstate(divide="ignore", invalid="ignore"):
            np.divide(factor, 1 if scales is None else scales[:, None], out=divided[head])
    defined = np.logical_and.reduce([np.isfinite(factor).all(axis=1) for factor in divided])
    if not defined.all():
        row = int(np.argmin(defined))
        raise CheckpointError(
            f"Tᵉᵉ of token id {row if token_ids is None else token_ids[row]} is not finite, so keys can't be ranked: "
            "its σ is 0, or the weights are damaged; check the checkpoint, or pass another scale"
        )
    return divided


def _largest_norm(vectors: Float[np.ndarray, "head token d_head"]) -> float:
    """The largest norm, computed in float64 so that squares don't overflow."""
    return max(float(np.sqrt(np.einsum("td,td->t", head, head, dtype=np.float64).max())) for head in vectors)
