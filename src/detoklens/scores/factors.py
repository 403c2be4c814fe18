"""Query and key factors: projections, rotation, what all queries and all keys have in common, factors of texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from detoklens.weights.first_layer import FirstLayer, FoldedLayer, Norm


def rotated(
    layer: FirstLayer, vectors: Float[np.ndarray, "*heads row d_head"], positions: Int[np.ndarray, "row"]
) -> Float[np.ndarray, "*heads row d_head"]:
    """Rotate each row to its position, as layer 0 rotates queries and keys; unchanged without rotary positions."""
    if layer.rotary_frequencies is None:
        return vectors
    return _turned(vectors, np.multiply.outer(positions, layer.rotary_frequencies), layer.rotary_factor)


def rotated_by_offset(
    layer: FirstLayer, queries: Float[np.ndarray, "*rows d_head"], offset: int
) -> Float[np.ndarray, "*rows d_head"]:
    """Rotate queries so that their products with unrotated keys are the scores at this offset i − j."""
    if layer.rotary_frequencies is None:
        return queries
    return _turned(queries, offset * layer.rotary_frequencies, layer.rotary_factor**2)


def _turned(vectors: np.ndarray, angles: np.ndarray, factor: float) -> np.ndarray:
    """Rotate by angles in float64; in float32 an angle at position 10,000 is off by a thousandth."""
    n_pairs = angles.shape[-1]
    cosine, sine = ((factor * wave(angles)).astype(vectors.dtype) for wave in (np.cos, np.sin))
    first, second = vectors[..., :n_pairs], vectors[..., n_pairs : 2 * n_pairs]
    turned = np.array(vectors)
    turned[..., :n_pairs] = first * cosine - second * sine
    turned[..., n_pairs : 2 * n_pairs] = second * cosine + first * sine
    return turned


ROWS = 2048  # of the vocabulary at a time: 64 MB in float64 at a width of 4,096


class TokenFactors(NamedTuple):
    """One head's Q_e and K_e of every token: before the division by σ, or after a norm on queries and keys."""

    query: Float[np.ndarray, "token d_head"]
    key: Float[np.ndarray, "token d_head"]


@dataclass(frozen=True)
class Side:
    """The query or the key projection: from normed inputs x / σ to each head's vectors, and their norms.

    `joint` is the side of all heads if one RMSNorm covers the vectors of all heads together (OLMo 2).
    """

    weight: Float[np.ndarray, "side_head d_model d_head"]
    bias: Float[np.ndarray, "side_head d_head"]
    norm: Norm | None
    joint: Side | None = None

    def of_heads(self, heads: list[int]) -> Side:
        """The same for some heads."""
        norm = None if self.norm is None else replace(self.norm, gain=self.norm.gain[heads])
        return replace(self, weight=self.weight[heads], bias=self.bias[heads], norm=norm)

    @property
    def constant(self) -> Float[np.ndarray, "side_head d_head"]:
        """The bias, which all tokens have in common; zero if a norm follows."""
        return self.bias if self.norm is None else np.zeros_like(self.bias)

    def mean(
        self,
        table: Float[np.ndarray, "token d_model"],
        scales: Float[np.ndarray, "token"],
        shares: Float[np.ndarray, "token"],
    ) -> Float[np.ndarray, "side_head d_head"]:
        """The weighted mean vector of the vocabulary: projected from the mean input unless a norm follows."""
        if self.norm is not None:
            heads = range(len(self.weight))
            found = [shares @ self.of_vocabulary(table, lambda: scales, head) for head in heads]
            return np.stack(found).astype(table.dtype)
        mean_input, weights = np.zeros(table.shape[1]), shares / scales
        for begin in range(0, len(table), ROWS):  # a float64 copy of Llama 3's table would take 4 GB
            rows = slice(begin, begin + ROWS)
            mean_input += weights[rows] @ table[rows].astype(np.float64)
        return self.bias + np.einsum("d,hdk->hk", mean_input, self.weight).astype(table.dtype)

    def less_constant(
        self, inputs: Float[np.ndarray, "row d_model"], constant: Float[np.ndarray, "side_head d_head"]
    ) -> Float[np.ndarray, "side_head row d_head"]:
        """Each head's vectors of these inputs, minus `constant`."""
        linear = project(inputs, self.weight)
        if self.norm is None:
            return linear + (self.bias - constant)[:, None]
        vectors, gain = linear + self.bias[:, None], self.norm.gain[:, None]
        if self.joint is None:
            return replace(self.norm, gain=gain)(vectors) - constant[:, None]
        return vectors / self.joint.root_mean_square(inputs, self.norm.epsilon) * gain - constant[:, None]

    def root_mean_square(self, inputs: Float[np.ndarray, "row d_model"], epsilon: float) -> Float[np.ndarray, "row 1"]:
        """The root mean square of the vectors of all heads together."""
        total = np.zeros(len(inputs))
        for weight, bias in zip(self.weight, self.bias, strict=True):
            vectors = inputs @ weight + bias
            total += np.einsum("rk,rk->r", vectors, vectors, dtype=np.float64)
        return np.sqrt(total / self.bias.size + epsilon).astype(inputs.dtype)[:, None]

    def of_vocabulary(
        self,
        table: Float[np.ndarray, "token d_model"],
        bare_scales: Callable[[], Float[np.ndarray, "token"]],
        head: int,
        token_ids: Sequence[int] | None = None,
    ) -> Float[np.ndarray, "row d_head"]:
        """One head's factor of every token: before the division by σ or, if a norm follows, after that norm.

        Of some tokens it has the same bits: the same blocks of rows are multiplied.
        """
        wanted = np.arange(len(table)) if token_ids is None else np.asarray(token_ids, np.int64)
        vectors = np.empty((len(wanted), self.weight.shape[2]), np.result_type(table, self.weight))
        for begin in np.unique(wanted - wanted % ROWS):
            rows, inside = slice(begin, begin + ROWS), np.flatnonzero(wanted // ROWS == begin // ROWS)
            block = table[rows] @ self.weight[head]
            if self.norm is not None:
                scales, norm = bare_scales(), replace(self.norm, gain=self.norm.gain[head])
                block = block / scales[rows, None] + self.bias[head]
                joint = self.joint and self._joint_divisors(table, scales)[rows]
                block = norm(block) if joint is None else block / joint * norm.gain
            vectors[inside] = block[wanted[inside] - begin]
        return vectors

    def _joint_divisors(
        self, table: Float[np.ndarray, "token d_model"], scales: Float[np.ndarray, "token"]
    ) -> Float[np.ndarray, "token 1"]:
        """The joint norm's divisor of every token, kept for the other heads."""
        assert self.joint is not None
        assert self.norm is not None
        kept = self.__dict__.get("_kept")
        if kept is None or kept[0] is not table:
            blocks = [slice(begin, begin + ROWS) for begin in range(0, len(table), ROWS)]
            found = [
                self.joint.root_mean_square(table[rows] / scales[rows, None], self.norm.epsilon) for rows in blocks
            ]
            kept = self.__dict__["_kept"] = (table, np.concatenate(found))
        return kept[1]


def query_side(layer: FirstLayer, folded: FoldedLayer) -> Side:
    return _with_norms(layer, Side(folded.query_weight, folded.query_bias, None), layer.query_norm_gain)


def key_side(layer: FirstLayer, folded: FoldedLayer) -> Side:
    return _with_norms(layer, Side(folded.key_weight, folded.key_bias, None), layer.key_norm_gain)


def _with_norms(layer: FirstLayer, side: Side, gain: Float[np.ndarray, "*side_head d_head"] | None) -> Side:
    if gain is None:
        return side
    norm = Norm(layer.head_norm_kind, np.broadcast_to(gain, side.bias.shape), None, layer.norm_epsilon)
    return replace(side, norm=norm, joint=side if layer.head_norms_are_joint else None)


def project(
    vectors: Float[np.ndarray, "row d_model"], weight: Float[np.ndarray, "head d_model d_head"]
) -> Float[np.ndarray, "head row d_head"]:
    """x W̃ for every head, each head's result contiguous."""
    projected = np.empty((weight.shape[0], len(vectors), weight.shape[2]), weight.dtype)
    for head, head_weight in enumerate(weight):
        np.matmul(vectors, head_weight, out=projected[head])
    return projected


def for_each_head(
    shared: Float[np.ndarray, "key_head *rows d_head"], layer: FirstLayer
) -> Float[np.ndarray, "head *rows d_head"]:
    """Keys or values, repeated for the heads that share them."""
    return shared if layer.heads_per_key == 1 else np.repeat(shared, layer.heads_per_key, axis=0)


Mean = str | np.ndarray | None
"""The mean query and key to split off: None for none, "vocabulary" over all tokens that are neither special nor
untrained, "frequency" weighted by token frequency, or an array with a weight for each token."""


class Common(NamedTuple):
    """What all queries, and all keys, have in common: a and b. Their biases, or their means over the vocabulary."""

    query: Float[np.ndarray, "head d_head"]
    key: Float[np.ndarray, "key_head d_head"]

    @property
    def is_nothing(self) -> bool:
        return not (self.query.any() or self.key.any())


class Factor(IntEnum):
    """What the query or key side of a term depends on; documents stack their terms in this order."""

    TOKEN = 0
    POSITION = 1  # the learned position embedding
    COMMON = 2  # what all tokens have in common, rotated to the position
    DISTANCE = 3  # ALiBi's slope times i − j; no product
    CONSTANT = 4  # the same for every query


Factors = dict[Factor, np.ndarray]
"""Each factor of the queries or keys of a text as [head, row, d_head]; CONSTANT is [head, d_head]."""


def side_factors(
    layer: FirstLayer,
    side: Side,
    constant: Float[np.ndarray, "side_head d_head"],
    tokens: Float[np.ndarray, "row d_model"],
    positions: Float[np.ndarray, "place d_model"] | None = None,
) -> Factors:
    """Every factor of the queries or of the keys, before a rotation; divided by σ if the inputs were.

    `constant` is what all tokens have in common, `positions` are rows of the table of learned positions.
    """
    if layer.positions == "learned":
        factors = {Factor.CONSTANT: constant, Factor.TOKEN: project(tokens, side.weight)}
        return factors if positions is None else factors | position_factors(positions, side.weight)
    factors = {Factor.CONSTANT: constant, Factor.TOKEN: side.less_constant(tokens, constant)}
    return factors | {Factor.COMMON: constant[:, None]} if layer.positions == "rotary" else factors


def position_factors(
    positions: Float[np.ndarray, "place d_model"], weight: Float[np.ndarray, "side_head d_model d_head"]
) -> Factors:
    """The factors of learned positions, which do not depend on tokens."""
    return {Factor.POSITION: project(positions, weight)}


def rotated_factors(layer: FirstLayer, factors: Factors, positions: Int[np.ndarray, "row"]) -> Factors:
    """The factors with each row rotated to its position; unchanged without rotary positions."""
    if layer.rotary_frequencies is None:
        return factors
    rows, present = factors[Factor.TOKEN].shape, factors.keys() & {Factor.TOKEN, Factor.COMMON}
    return factors | {factor: rotated(layer, np.broadcast_to(factors[factor], rows), positions) for factor in present}


def key_head_of(head: int, layer: FirstLayer) -> int:
    """The keys and values that a head uses."""
    return head // layer.heads_per_key
