"""Which numbers of a layer does a page need? Thin factors of each head, σ, and what queries and keys share.

One head is in memory at a time. Factors are not divided by σ: a text divides by σ of a token at its place, the
vocabulary by each token's mean σ.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from detoklens.explorer.arrays import Arrays
from detoklens.explorer.covariance import thin_covariance
from detoklens.progress import Watcher
from detoklens.scores.common_part import biases, means, token_shares
from detoklens.scores.factors import Side, key_side, project, query_side
from detoklens.scores.layer import Layer


def write_layer(layer: Layer, arrays: Arrays, text_limit: int, watch: Watcher | None = None) -> None:
    """Write all arrays of a layer."""
    scale = token_divisor(layer)
    arrays.add("token_scale", scale)
    _write_factors(layer, arrays, scale, watch)
    common = biases(layer.weights, layer.folded)
    arrays.add("bias_query", common.query)
    arrays.add("bias_key", common.key)
    if layer.positions == "learned":
        _write_positions(layer, arrays)
        _write_scales(layer, arrays, text_limit)
    else:
        shares = token_shares("vocabulary", layer.vocab_size)
        mean = means(layer.weights, layer.folded, layer.scales.bare_tokens(), shares)
        arrays.add("mean_query", mean.query)
        arrays.add("mean_key", mean.key)


def token_divisor(layer: Layer) -> Float[np.ndarray, "token"]:
    """The σ that Tᵉᵉ over the vocabulary divides by: 1 where queries and keys are normed already."""
    return np.ones(layer.vocab_size, np.float32) if layer.weights.has_query_key_norms else layer.token_scale("mean")


def _write_factors(layer: Layer, arrays: Arrays, scale: Float[np.ndarray, "token"], watch: Watcher | None) -> None:
    query, key = query_side(layer.weights, layer.folded), key_side(layer.weights, layer.folded)
    in_all, centres = len(query.weight) + len(key.weight), []
    for head in range(len(query.weight)):
        factor = _factor(layer, query, head)
        arrays.add_half(f"query_{head}", factor)
        centres.append(np.einsum("td,t->d", factor, 1 / scale.astype(np.float64)) / len(factor))
        _tell(watch, head + 1, in_all)
    for head in range(len(key.weight)):
        arrays.add_half(f"key_{head}", _factor(layer, key, head))
        _tell(watch, len(query.weight) + head + 1, in_all)
    arrays.add("centre_query", np.stack(centres))


def _factor(layer: Layer, side: Side, head: int) -> Float[np.ndarray, "token d_head"]:
    return side.of_vocabulary(layer.weights.token_embeddings, layer.scales.bare_tokens, head)


def _write_positions(layer: Layer, arrays: Arrays) -> None:
    positions = layer.weights.position_embeddings
    queries, keys = (project(positions, weight) for weight in (layer.folded.query_weight, layer.folded.key_weight))
    for head in range(layer.n_heads):
        arrays.add(f"position_query_{head}", queries[head])
        arrays.add(f"position_key_{head}", keys[head])
    arrays.add("position_scale", layer.scales.mean_over_tokens())


def _write_scales(layer: Layer, arrays: Arrays, text_limit: int) -> None:
    """What σ of any token at the first positions is made of; nothing where there is no norm."""
    if layer.weights.norm_kind == "none":
        return
    arrays.add("token_variance", layer.scales.token_variance)
    arrays.add("position_variance", layer.scales.position_variance[:text_limit])
    thin = thin_covariance(layer.scales, text_limit)
    if thin.token.shape[1]:
        arrays.add_half("token_covariance", thin.token, thin.error)
        arrays.add("position_covariance", thin.position)


def _tell(watch: Watcher | None, done: int, in_all: int) -> None:
    if watch is not None:
        watch(done, in_all)
