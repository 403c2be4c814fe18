"""Which tokens does a token look for? T^ee over the vocabulary, as two thin factors with σ divided in.

    T^ee[h, i, j] = (Q_e[h, i] / σ_i) · (K_e[h, j] / σ_j)

Centring subtracts each key's mean over all query tokens, so that keys which every query prefers stand back. It needs
no V × V array: mean over i of T^ee[h, i, j] = (mean over i of Q_e[h, i] / σ_i) · K_e[h, j] / σ_j.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from detoklens.errors import CheckpointError
from detoklens.scores.factors import Factors


@dataclass(frozen=True)
class Affinity:
    """T^ee of the whole vocabulary in thin form: the score of (query, key) is query · key."""

    query: Float[np.ndarray, "head token d_head"]
    key: Float[np.ndarray, "head token d_head"]

    @property
    def n_heads(self) -> int:
        return len(self.query)

    @property
    def vocab_size(self) -> int:
        return self.query.shape[1]

    def scores(self, token_ids: Int[np.ndarray, "query"]) -> Float[np.ndarray, "head query key"]:
        """T^ee of some query tokens against all key tokens."""
        return self.query[:, token_ids] @ self.key.transpose(0, 2, 1)

    def centred(self) -> Affinity:
        """The same with each key's mean over all query tokens subtracted."""
        mean = self.query.mean(axis=1, keepdims=True, dtype=np.float64).astype(self.query.dtype)
        return Affinity(self.query - mean, self.key)

    def of_heads(self, heads: list[int]) -> Affinity:
        """The same for some heads only."""
        return Affinity(self.query[heads], self.key[heads])


def token_affinity(factors: Factors, scales: Float[np.ndarray, "token"] | None) -> Affinity:
    """T^ee with one σ per token; without scales, T^ee as if LayerNorm did not divide."""
    query, key = factors.query_token, factors.key_token
    if scales is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            query, key = query / scales[:, None], key / scales[:, None]
    _refuse_undefined(query, key)
    return Affinity(query, key)


def _refuse_undefined(
    query: Float[np.ndarray, "head token d_head"], key: Float[np.ndarray, "head token d_head"]
) -> None:
    """One undefined score leaves the keys of its row, or of every row, without an order."""
    defined = np.isfinite(query).all(axis=(0, 2)) & np.isfinite(key).all(axis=(0, 2))
    if not defined.all():
        raise CheckpointError(
            f"T^ee of token id {int(np.argmin(defined))} is not finite, so keys have no order: its σ is 0, or the "
            "weights are damaged; try another --scale"
        )
    largest = float(_largest_norm(query)) * float(_largest_norm(key))
    if largest > float(np.finfo(query.dtype).max):
        raise CheckpointError(
            f"T^ee can be as large as {largest:.0e}, beyond {query.dtype}: the weights are damaged, or of another scale"
        )


def _largest_norm(vectors: Float[np.ndarray, "head token d_head"]) -> float:
    """The largest length, added up in float64: squares may be too large for the vectors' own type."""
    return max(float(np.sqrt(np.einsum("td,td->t", head, head, dtype=np.float64).max())) for head in vectors)
