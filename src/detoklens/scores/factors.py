"""Thin factors: every term is a product of a query factor and a key factor, so W_QK is never built.

query side:  Q_e = E W̃_Q    Q_p = P W̃_Q    q_b = b̃_Q
key side:    K_e = E W̃_K    K_p = P W̃_K    k_b = b̃_K, which counts only where positions turn it

Those of a text are made with its terms. Those of the whole vocabulary are made head by head, as heads are asked for;
heads that share keys share their factor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from detoklens.weights.first_layer import FirstLayer
from detoklens.weights.folding import FoldedLayer
from detoklens.weights.norm import Norm

ROWS = 2048  # of the vocabulary together: 64 MB in float64 at a width of 4,096


@dataclass(frozen=True)
class TokenFactors:
    """One head's Q_e and K_e of every token, before any division by σ.

    Where queries and keys are normed (Qwen3, Gemma 3), σ is divided out before that norm: these are after it.
    """

    query: Float[np.ndarray, "token d_head"]
    key: Float[np.ndarray, "token d_head"]


@dataclass(frozen=True)
class Side:
    """Queries or keys: from normed inputs x / σ to each head's vectors."""

    weight: Float[np.ndarray, "side_head d_model d_head"]
    bias: Float[np.ndarray, "side_head d_head"]
    norm: Norm | None

    @property
    def constant(self) -> Float[np.ndarray, "side_head d_head"]:
        """What every token's vector has in common by the weights alone: the bias, nothing where a norm follows."""
        return self.bias if self.norm is None else np.zeros_like(self.bias)

    def less_constant(
        self, inputs: Float[np.ndarray, "row d_model"], constant: Float[np.ndarray, "side_head d_head"]
    ) -> Float[np.ndarray, "side_head row d_head"]:
        """Each head's vectors of these inputs, less what is named as common to all."""
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
        """One head's factor of every token: before any division by σ, or after the norm that follows it."""
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
    """The rows' sum in float64, some at a time: a whole copy in float64 would be 4 GB for Llama 3."""
    total = np.zeros(table.shape[1])
    for begin in range(0, len(table), ROWS):
        rows = slice(begin, begin + ROWS)
        total += weights[rows] @ table[rows].astype(np.float64)
    return total


def for_each_head(
    shared: Float[np.ndarray, "key_head row d_head"], layer: FirstLayer
) -> Float[np.ndarray, "head row d_head"]:
    """Keys or values of a text, repeated for the heads that share them."""
    return shared if layer.heads_per_key == 1 else np.repeat(shared, layer.heads_per_key, axis=0)
