"""What do all queries, and all keys, have in common? Their biases, or their means over the vocabulary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from detoklens.errors import RangeError, shown
from detoklens.scores.factors import Side, key_side, query_side, weighted_sum
from detoklens.weights.first_layer import FirstLayer
from detoklens.weights.folding import FoldedLayer

Mean = str | np.ndarray | None
"""Of what is the mean that is split off? None splits nothing off; "vocabulary" is all tokens alike, "frequency" each as
often as it occurs in text; an array has a weight for each token."""


@dataclass(frozen=True)
class Common:
    """What all queries, and all keys, have in common: a and b."""

    query: Float[np.ndarray, "head d_head"]
    key: Float[np.ndarray, "key_head d_head"]

    @property
    def is_nothing(self) -> bool:
        return not (self.query.any() or self.key.any())


def biases(layer: FirstLayer, folded: FoldedLayer) -> Common:
    """What the weights alone say: the biases, nothing where a norm follows them."""
    return Common(query_side(layer, folded).constant, key_side(layer, folded).constant)


def means(
    layer: FirstLayer,
    folded: FoldedLayer,
    scales: Float[np.ndarray, "token"],
    shares: Float[np.ndarray, "token"],
) -> Common:
    """The mean query and key of the vocabulary, biases included; σ of each token divides its embedding."""
    sides = query_side(layer, folded), key_side(layer, folded)
    return Common(*(_mean_vectors(layer.token_embeddings, side, scales, shares) for side in sides))


def token_shares(
    mean: Mean, vocab_size: int, frequencies: Float[np.ndarray, "_"] | None = None
) -> Float[np.ndarray, "token"]:
    """Shares of the vocabulary that add up to 1."""
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
    """Queries are linear in the normed embedding, so their mean is that of the mean; not so where a norm follows."""
    if side.norm is None:
        mean_input = weighted_sum(table, shares / scales)
        return side.bias + np.einsum("d,hdk->hk", mean_input, side.weight).astype(table.dtype)
    found = [shares @ side.of_table(table, scales, head) for head in range(len(side.weight))]
    return np.stack(found).astype(table.dtype)
