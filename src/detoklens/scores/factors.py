"""Query and key factors of tokens, rotary rotation, and what all queries and all keys have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from detoklens.errors import RangeError, shown
from detoklens.weights.first_layer import FirstLayer
from detoklens.weights.folding import FoldedLayer
from detoklens.weights.norm import Norm


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


@dataclass(frozen=True)
class TokenFactors:
    """One head's Q_e and K_e of every token, before the division by σ.

    If queries and keys are normed (Qwen3, Gemma 3), they are after that norm, and σ is already divided out.
    """

    query: Float[np.ndarray, "token d_head"]
    key: Float[np.ndarray, "token d_head"]


@dataclass(frozen=True)
class Side:
    """The query or the key projection: from normed inputs x / σ to each head's vectors."""

    weight: Float[np.ndarray, "side_head d_model d_head"]
    bias: Float[np.ndarray, "side_head d_head"]
    norm: Norm | None

    @property
    def constant(self) -> Float[np.ndarray, "side_head d_head"]:
        """The bias, which all tokens have in common; zero if a norm follows."""
        return self.bias if self.norm is None else np.zeros_like(self.bias)

    def less_constant(
        self, inputs: Float[np.ndarray, "row d_model"], constant: Float[np.ndarray, "side_head d_head"]
    ) -> Float[np.ndarray, "side_head row d_head"]:
        """Each head's vectors of these inputs, minus `constant`."""
        linear = project(inputs, self.weight)
        if self.norm is None:
            return linear + (self.bias - constant)[:, None]
        return self.norm(linear + self.bias[:, None]) - constant[:, None]

    def of_vocabulary(
        self,
        table: Float[np.ndarray, "token d_model"],
        bare_scales: Callable[[], Float[np.ndarray, "token"]],
        head: int,
    ) -> Float[np.ndarray, "token d_head"]:
        """One head's factor of every token: before the division by σ or, if a norm follows, after that norm."""
        return table @ self.weight[head] if self.norm is None else self.of_table(table, bare_scales(), head)

    def of_table(
        self, table: Float[np.ndarray, "token d_model"], scales: Float[np.ndarray, "token"], head: int
    ) -> Float[np.ndarray, "token d_head"]:
        """One head's normed vectors of the whole vocabulary."""
        assert self.norm is not None
        vectors = np.empty((len(table), self.weight.shape[2]), table.dtype)
        for begin in range(0, len(table), ROWS):
            rows = slice(begin, begin + ROWS)
            linear = table[rows] @ self.weight[head] / scales[rows, None]
            vectors[rows] = self.norm(linear + self.bias[head])
        return vectors


def query_side(layer: FirstLayer, folded: FoldedLayer) -> Side:
    return Side(folded.query_weight, folded.query_bias, _head_norm(layer, layer.query_norm_gain))


def key_side(layer: FirstLayer, folded: FoldedLayer) -> Side:
    return Side(folded.key_weight, folded.key_bias, _head_norm(layer, layer.key_norm_gain))


def _head_norm(layer: FirstLayer, gain: Float[np.ndarray, "d_head"] | None) -> Norm | None:
    return None if gain is None else Norm("rms", gain, None, layer.norm_epsilon)


def project(
    vectors: Float[np.ndarray, "row d_model"], weight: Float[np.ndarray, "head d_model d_head"]
) -> Float[np.ndarray, "head row d_head"]:
    """x W̃ for every head, each head's result contiguous."""
    projected = np.empty((weight.shape[0], len(vectors), weight.shape[2]), weight.dtype)
    for head, head_weight in enumerate(weight):
        np.matmul(vectors, head_weight, out=projected[head])
    return projected


def weighted_sum(
    table: Float[np.ndarray, "token d_model"], weights: Float[np.ndarray, "token"]
) -> Float[np.ndarray, "d_model"]:
    """Weighted sum of the rows in float64, in blocks: a float64 copy of Llama 3's table would take 4 GB."""
    total = np.zeros(table.shape[1])
    for begin in range(0, len(table), ROWS):
        rows = slice(begin, begin + ROWS)
        total += weights[rows] @ table[rows].astype(np.float64)
    return total


def for_each_head(
    shared: Float[np.ndarray, "key_head *rows d_head"], layer: FirstLayer
) -> Float[np.ndarray, "head *rows d_head"]:
    """Keys or values, repeated for the heads that share them."""
    return shared if layer.heads_per_key == 1 else np.repeat(shared, layer.heads_per_key, axis=0)


Mean = str | np.ndarray | None
"""The mean query and key to split off: None for none, "vocabulary" over all tokens equally, "frequency" weighted by
token frequency, or an array with a weight for each token."""


@dataclass(frozen=True)
class Common:
    """What all queries, and all keys, have in common: a and b."""

    query: Float[np.ndarray, "head d_head"]
    key: Float[np.ndarray, "key_head d_head"]

    @property
    def is_nothing(self) -> bool:
        return not (self.query.any() or self.key.any())


def biases(layer: FirstLayer, folded: FoldedLayer) -> Common:
    """The biases; zero if a norm follows them."""
    return Common(query_side(layer, folded).constant, key_side(layer, folded).constant)


def means(
    layer: FirstLayer,
    folded: FoldedLayer,
    scales: Float[np.ndarray, "token"],
    shares: Float[np.ndarray, "token"],
) -> Common:
    """The weighted mean query and key of the vocabulary, biases included."""
    sides = query_side(layer, folded), key_side(layer, folded)
    return Common(*(_mean_vectors(layer.token_embeddings, side, scales, shares) for side in sides))


def token_shares(
    mean: Mean, vocab_size: int, frequencies: Float[np.ndarray, "_"] | None = None
) -> Float[np.ndarray, "token"]:
    """The weight of each token in a mean; weights add up to 1."""
    named = {"vocabulary": np.ones(vocab_size), "frequency": frequencies}
    if isinstance(mean, str) and mean == "frequency" and frequencies is None:
        raise RangeError(
            "mean 'frequency' needs to know how often tokens occur: take the layer of a study with counts, "
            "study(model, counts=…).layer, or layer.with_frequencies(counts.tokens)"
        )
    weights: Any = named.get(mean) if isinstance(mean, str) else mean
    if not isinstance(weights, np.ndarray) or weights.shape != (vocab_size,):
        raise RangeError(
            f"mean {shown(mean)} is neither 'vocabulary' nor 'frequency' nor an array of {vocab_size} weights, "
            "one per token"
        )
    total = float(weights.sum())
    if not (np.isfinite(total) and total > 0 and (weights >= 0).all()):
        raise RangeError("the weights of a mean must be numbers from 0 up, not all 0")
    return weights.astype(np.float64) / total


def _mean_vectors(
    table: Float[np.ndarray, "token d_model"],
    side: Side,
    scales: Float[np.ndarray, "token"],
    shares: Float[np.ndarray, "token"],
) -> Float[np.ndarray, "side_head d_head"]:
    """Without a norm, the mean vector is the projection of the mean input; with one, every token is projected."""
    if side.norm is None:
        mean_input = weighted_sum(table, shares / scales)
        return side.bias + np.einsum("d,hdk->hk", mean_input, side.weight).astype(table.dtype)
    found = [shares @ side.of_table(table, scales, head) for head in range(len(side.weight))]
    return np.stack(found).astype(table.dtype)
