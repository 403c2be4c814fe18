"""What makes a head's score vary? Six shares of its variance, from means and covariances of queries and keys.

Draw a query token t and a key token u independently, weighted by frequency, and an offset δ evenly. The score is

    s(t, u, δ) = q(t) · k(u, δ),        with ALiBi  − slope · δ

where k(u, δ) = R_δ k(u) with rotary positions, and with learned ones (e_u + p_j) W̃_K / σ(u, j) at j = i − δ, seen from
a query position i. Queries have mean q̄ and covariance Σ; keys at one offset have k̄_δ and C_δ, keys averaged over
offsets have k̄ and C. Since t, u and δ are independent, the variance splits exactly:

    offset          Var_δ(q̄ · k̄_δ)                   query × offset   mean_δ (k̄_δ − k̄) Σ (k̄_δ − k̄)
    key             q̄ C q̄                            query × key      tr(Σ C)
    key × offset    mean_δ q̄ C_δ q̄ − q̄ C q̄          three-way        mean_δ tr(Σ C_δ) − tr(Σ C)

What depends on the query token alone is left out: the softmax cancels it, and a key bias with it unless it is rotated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from detoklens.measures.positions import trained_length
from detoklens.parallel import Runner, thread_map
from detoklens.scores.factors import Side, rotated_by_offset
from detoklens.scores.layer import Layer
from detoklens.scores.softmax import seen_keys
from detoklens.scores.terms import kernel

SHARES = ("offset", "key", "key_offset", "query_offset", "query_key", "three_way")
ROUNDING = 1e-12  # relative to its size, a kernel that varies less is constant

TokenVectors = Float[np.ndarray, "token d_head"]
Matrix = Float[np.ndarray, "d_head d_head"]


@dataclass(frozen=True)
class HeadAnatomy:
    """One head's numbers; the shares are NaN where the score doesn't vary."""

    sd: float
    shares: Float[np.ndarray, "six"]
    lexical_sd: float
    pair_sd: Float[np.ndarray, "pair"]
    """Standard deviation of each rotary pair's part of the kernel q̄ · k̄_δ."""
    pair_share: Float[np.ndarray, "pair"]
    """Cov_δ(part, kernel) / Var_δ(kernel): they add up to 1; a pair that works against the others has less than 0."""


@dataclass(frozen=True)
class Keys:
    """Moments of one head's keys: means by offset, covariance of what offsets share, mean covariance of the rest."""

    mean: Float[np.ndarray, "offset d_head"]
    shared: Matrix
    varying: Matrix
    previous: Matrix | None
    """Covariance at offset 1, where a query sees it."""


def visible_offsets(layer: Layer, n_offsets: int, query_position: int | None) -> Int[np.ndarray, "offset"]:
    """The offsets i − j below `n_offsets` that a query sees; in a model that looks both ways, negative ones too."""
    if query_position is None:
        n_keys = 2 * layer.n_positions - 1
        query_position = layer.n_positions - 1
    else:
        trained = trained_length(layer)
        n_keys = trained if query_position < trained else layer.n_positions
    seen = seen_keys(query_position, n_keys, layer.is_causal, layer.weights.window)
    offsets = query_position - np.arange(seen.start, seen.stop)
    return offsets[np.abs(offsets) < n_offsets][::-1]


def anatomies(
    layer: Layer,
    heads: Sequence[int],
    token_shares: Float[np.ndarray, "token"],
    n_offsets: int,
    query_position: int | None,
    runner: Runner,
) -> list[HeadAnatomy]:
    """The anatomy of some heads; `query_position` is None unless positions are learned."""
    offsets = visible_offsets(layer, n_offsets, query_position)
    sees_previous = 1 in visible_offsets(layer, 2, query_position)
    query_side, key_side = layer.sides
    vocabulary = (
        _Everywhere(layer, token_shares, offsets, sees_previous)
        if query_position is None
        else _AtPositions(layer, token_shares, offsets, sees_previous, query_position)
    )
    per_key = layer.weights.heads_per_key
    key_heads = sorted({head // per_key for head in heads})
    found_keys = thread_map(lambda head: vocabulary.keys(key_side, head), key_heads, runner.workers)
    keys = dict(zip(key_heads, found_keys, strict=True))
    slopes = kernel(layer.weights, layer.common_part(None), offsets) if layer.positions == "alibi" else None
    n_pairs = 0 if layer.weights.rotary_frequencies is None else len(layer.weights.rotary_frequencies)

    def anatomy(head: int) -> HeadAnatomy:
        mean, covariance = _moments(vocabulary.queries(query_side, head), token_shares)
        added = np.zeros(len(offsets)) if slopes is None else slopes[head].astype(np.float64)
        return _anatomy(mean, covariance, keys[head // per_key], added, layer.attention_scale, n_pairs)

    return list(runner.map(anatomy, heads))


def _anatomy(
    query: Float[np.ndarray, "d_head"],
    covariance: Matrix,
    keys: Keys,
    added: Float[np.ndarray, "offset"],
    scale: float,
    n_pairs: int,
) -> HeadAnatomy:
    by_offset = keys.mean @ query + added
    away = keys.mean - keys.mean.mean(axis=0)
    variances = [
        by_offset.var(),
        query @ keys.shared @ query,
        query @ keys.varying @ query,
        np.einsum("od,de,oe->", away, covariance, away) / len(away),
        np.sum(covariance * keys.shared),
        np.sum(covariance * keys.varying),
    ]
    shares = np.maximum(variances, 0.0)  # a difference of equal covariances may round to below 0
    total = shares.sum()
    lexical = np.nan if keys.previous is None else scale * np.sqrt(max(0.0, np.sum(covariance * keys.previous)))
    products = keys.mean * query
    waves = products[:, :n_pairs] + products[:, n_pairs : 2 * n_pairs]
    waves = waves - waves.mean(axis=0)
    whole = waves.sum(axis=1)
    varies = np.abs(whole).max() > ROUNDING * np.abs(products).max()
    return HeadAnatomy(
        sd=float(scale * np.sqrt(total)),
        shares=shares / total if total > 0 else np.full(len(SHARES), np.nan),
        lexical_sd=float(lexical),
        pair_sd=scale * waves.std(axis=0),
        pair_share=whole @ waves / (whole @ whole) if varies else np.full(n_pairs, np.nan),
    )


def _moments(
    vectors: TokenVectors, token_shares: Float[np.ndarray, "token"]
) -> tuple[Float[np.ndarray, "d_head"], Matrix]:
    """Weighted mean and covariance; the vectors are overwritten."""
    mean = token_shares @ vectors
    vectors -= mean
    vectors *= np.sqrt(token_shares)[:, None]
    return mean, vectors.T @ vectors


def _projected(layer: Layer, side: Side, head: int) -> TokenVectors:
    """Queries or keys of every token before the division by σ and the bias, or after the query-key norm."""
    return side.of_vocabulary(layer.weights.token_embeddings, layer.scales.bare_tokens, head).astype(np.float64)


@dataclass(frozen=True)
class _Everywhere:
    """Rotary and ALiBi positions: a token has one query and one key; an offset rotates them, or leaves them alone."""

    layer: Layer
    token_shares: Float[np.ndarray, "token"]
    offsets: Int[np.ndarray, "offset"]
    sees_previous: bool

    def vectors(self, side: Side, head: int) -> TokenVectors:
        found = _projected(self.layer, side, head)
        if side.norm is None:
            found /= self.layer.scales.bare_tokens()[:, None]
            found += side.bias[head]
        return found

    queries = vectors

    def keys(self, side: Side, head: int) -> Keys:
        mean, covariance = _moments(self.vectors(side, head), self.token_shares)
        rotations = np.stack([self._rotation(int(offset)) for offset in self.offsets])
        shared = rotations.mean(axis=0)
        changes = rotations - shared
        previous = self._rotation(1)
        return Keys(
            mean=rotations @ mean,
            shared=shared @ covariance @ shared.T,
            varying=np.mean(changes @ covariance @ changes.transpose(0, 2, 1), axis=0),
            previous=previous @ covariance @ previous.T if self.sees_previous else None,
        )

    def _rotation(self, offset: int) -> Matrix:
        """R_δ: the score is q R_δ k."""
        return rotated_by_offset(self.layer.weights, np.eye(self.layer.d_head), offset)


class _AtPositions:
    """Learned positions: σ(u, j) depends on token and position, so a token has a key for each key position."""

    def __init__(
        self,
        layer: Layer,
        token_shares: Float[np.ndarray, "token"],
        offsets: Int[np.ndarray, "offset"],
        sees_previous: bool,
        query_position: int,
    ) -> None:
        self.layer, self.token_shares, self.sees_previous = layer, token_shares, sees_previous
        self.query_position, self.key_positions = query_position, query_position - offsets
        used = [*self.key_positions, *([query_position - 1] if sees_previous else [])]
        self.first, last = int(min(used)), int(max(used))
        self.inverse_scales = 1 / layer.scales.of_positions(slice(self.first, last + 1)).astype(np.float64)
        self.inverse = self.inverse_scales[self.key_positions - self.first]
        self.weighted = self.inverse * token_shares
        self.squared = self.inverse * self.weighted

    def queries(self, side: Side, head: int) -> TokenVectors:
        return self._at(self.query_position, _projected(self.layer, side, head), side, head) + side.bias[head]

    def keys(self, side: Side, head: int) -> Keys:
        """The moments of (a_u + b_j) / σ(u, j), with a and b the projections of tokens and of positions."""
        tokens, places, n = _projected(self.layer, side, head), self._places(side, head), len(self.key_positions)
        previous = None
        if self.sees_previous:
            _, previous = _moments(self._at(self.query_position - 1, tokens, side, head), self.token_shares)
        mean = self.weighted @ tokens + self.weighted.sum(axis=1)[:, None] * places
        averaged = tokens * self.inverse.mean(axis=0)[:, None]
        averaged += self.inverse.T @ (places / n)
        _, shared = _moments(averaged, self.token_shares)
        crossed = (self.squared @ tokens).T @ places
        placed = (places * self.squared.sum(axis=1)[:, None]).T @ places
        tokens *= np.sqrt(self.squared.mean(axis=0))[:, None]
        second = tokens.T @ tokens + (crossed + crossed.T + placed) / n
        return Keys(mean, shared, second - mean.T @ mean / n - shared, previous)

    def _at(self, position: int, tokens: TokenVectors, side: Side, head: int) -> TokenVectors:
        """(e + p) W̃ / σ(e + p) of every token at one position."""
        place = self.layer.weights.position_embeddings[position].astype(np.float64) @ side.weight[head]
        return (tokens + place) * self.inverse_scales[position - self.first, :, None]

    def _places(self, side: Side, head: int) -> Float[np.ndarray, "offset d_head"]:
        return self.layer.weights.position_embeddings[self.key_positions].astype(np.float64) @ side.weight[head]
