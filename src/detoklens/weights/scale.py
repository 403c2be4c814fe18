"""The divisor of the norm: σ(e + p) of every token at every position, without building the vectors.

    σ(x) = sqrt(Var(x) + ε),    Var(e + p) = Var(e) + Var(p) + 2 Cov(e, p)

Var and Cov are taken over the features. Centring p is enough for Cov(e, p) = e · (p − mean p) / d, so all pairs come
from one matrix product of the two tables. It is computed in blocks: for GPT-2 small it has 1,024 × 50,257 numbers,
206 MB.

RMSNorm uses the mean square instead of the variance and centres nothing; without a norm σ is 1. If positions are not
added to the embeddings, σ is that of the embedding at every position.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float, Int

from detoklens.errors import CheckpointError
from detoklens.weights.first_layer import FirstLayer, NormKind

BLOCK_BYTES = 32 << 20
FLOAT64_ADVICE = ', or load the model in Python with detoklens.load(model, dtype="float64")'


class ScaleTable:
    """σ of every token at every position, and its means."""

    def __init__(self, layer: FirstLayer) -> None:
        self._tokens, self._kind, self._epsilon = layer.token_embeddings, layer.norm_kind, layer.norm_epsilon
        self._has_positions = layer.positions == "learned"
        positions = layer.position_embeddings if self._has_positions else np.zeros_like(self._tokens[:1])
        means = positions.mean(axis=1, keepdims=True, dtype=np.float64).astype(positions.dtype)
        self._positions = positions if self._kind == "rms" else positions - means
        self.token_variance: Float[np.ndarray, "token"] = _variance(self._tokens, self._kind)
        self.position_variance: Float[np.ndarray, "position"] = _variance(self._positions, self._kind)

    def at(
        self, positions: Int[np.ndarray, "*shape"], tokens: Int[np.ndarray, "*shape"]
    ) -> Float[np.ndarray, "*shape"]:
        """σ of each token at the corresponding position."""
        both = self._tokens[tokens] + self._positions[positions if self._has_positions else np.zeros_like(positions)]
        spread = np.mean(both * both, axis=-1) if self._kind == "rms" else both.var(axis=-1)
        return np.asarray(self._root(np.asarray(spread)))

    def bare_tokens(self) -> Float[np.ndarray, "token"]:
        """σ of the token embeddings alone."""
        return self._root(self.token_variance)

    def of_positions(self, positions: slice) -> Float[np.ndarray, "position token"]:
        """σ of every token at a range of positions."""
        if not self._has_positions:
            return np.broadcast_to(self.bare_tokens(), (positions.stop - positions.start, len(self._tokens)))
        return self._pairs(positions)

    def position_blocks(self) -> Iterator[tuple[slice, Float[np.ndarray, "position token"]]]:
        """σ of every token, in blocks of positions of 32 MB."""
        return ((block, self._pairs(block)) for block in self._blocks())

    def _blocks(self) -> Iterator[slice]:
        return _row_blocks(len(self._positions), self._tokens.itemsize * len(self._tokens))

    def mean_over_positions(self, rounded_to: type[np.floating] | None = None) -> Float[np.ndarray, "token"]:
        """Each token's σ, averaged over all positions; `rounded_to` rounds each σ to a type first."""
        total = np.zeros(len(self._tokens))
        for _, scales in self.position_blocks():
            rounded = scales if rounded_to is None else scales.astype(rounded_to)
            total += rounded.sum(axis=0, dtype=np.float64)
        return (total / len(self._positions)).astype(self._tokens.dtype)

    def mean_over_tokens(self) -> Float[np.ndarray, "position"]:
        """Each position's σ, averaged over the vocabulary."""
        shares = np.full(len(self._tokens), 1 / len(self._tokens))
        means = [scales.astype(np.float64) @ shares for _, scales in self.position_blocks()]
        return np.concatenate(means).astype(self._tokens.dtype)

    def covariance(self, positions: slice) -> Float[np.ndarray, "position token"]:
        """Cov(e, p) of every token at a range of positions; for RMSNorm the mean product."""
        return self._positions[positions] @ self._tokens.T / self._tokens.shape[1]

    def mean_absolute_covariance(self) -> float:
        """Mean |Cov(e, p)| over all tokens and positions."""
        total = sum(float(np.abs(self.covariance(block)).sum(dtype=np.float64)) for block in self._blocks())
        return total / (len(self._positions) * len(self._tokens))

    def _root(self, variance: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
        if self._kind == "none":
            return np.ones_like(variance)
        squared = np.asarray(variance + variance.dtype.type(self._epsilon))
        self._check_divisors(squared)
        return np.asarray(np.sqrt(squared))

    def _pairs(self, positions: slice) -> Float[np.ndarray, "position token"]:
        scales = self._positions[positions] @ self._tokens.T
        scales *= 2 / self._tokens.shape[1]
        scales += self.token_variance
        scales += self.position_variance[positions, None]
        # Rounding can make Var(e + p) slightly negative where e = −p.
        np.maximum(scales, 0, out=scales)
        if self._kind == "none":
            return np.ones_like(scales)
        scales += scales.dtype.type(self._epsilon)
        self._check_divisors(scales)
        return np.sqrt(scales, out=scales)

    def _check_divisors(self, squared: Float[np.ndarray, "*shape"]) -> None:
        """Refuse σ² that is 0, subnormal or infinite in its type."""
        limits = np.finfo(squared.dtype)
        if squared.size and not (squared.min() >= limits.tiny and squared.max() <= limits.max):
            found = squared.max() if squared.min() >= limits.tiny else squared.min()
            raise CheckpointError(
                f"the norm would divide by the root of {found:g}, which {squared.dtype} can't hold exactly (ε is "
                f"{self._epsilon:g}): the embeddings are 0, too small or too large; check the weights and the "
                f"config's ε{FLOAT64_ADVICE}"
            )


def _variance(table: Float[np.ndarray, "row d_model"], kind: NormKind) -> Float[np.ndarray, "row"]:
    """Each row's variance, or for RMSNorm its mean square."""
    found = np.empty(len(table), table.dtype)
    for block in _row_blocks(len(table), 8 * table.shape[1]):
        rows = table[block]
        if kind == "rms":
            found[block] = np.einsum("rd,rd->r", rows, rows, dtype=np.float64) / rows.shape[1]
        else:
            found[block] = rows.var(axis=1, dtype=np.float64)
    return found


def _row_blocks(rows: int, bytes_per_row: int) -> Iterator[slice]:
    step = max(1, BLOCK_BYTES // bytes_per_row)
    return (slice(begin, min(begin + step, rows)) for begin in range(0, rows, step))
