"""The terms of one text where positions are not added to embeddings: rotary positions and ALiBi.

Layer 0's input is then the norm of one token's embedding, so a query is a vector of its token: what all tokens have in
common, a, and the rest, Q_e. Likewise a key, b and K_e. (Q_e + a) R_δ (K_e + b) is four terms (see `terms`).
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from detoklens.scores.common_part import Common
from detoklens.scores.factors import for_each_head, key_side, query_side
from detoklens.scores.rotation import rotated, rotated_by_offset
from detoklens.scores.terms import MEANINGS, Term, Terms
from detoklens.weights.first_layer import FirstLayer
from detoklens.weights.folding import FoldedLayer


def offset_terms(
    layer: FirstLayer,
    folded: FoldedLayer,
    token_ids: Int[np.ndarray, "query"],
    scales: Float[np.ndarray, "query"],
    common: Common,
) -> Terms:
    """All terms of a text whose first token stands at position 0; `scales` is σ of each of its tokens."""
    inputs = layer.token_embeddings[token_ids] / scales[:, None]
    query = query_side(layer, folded).less_constant(inputs, common.query)
    key = key_side(layer, folded).less_constant(inputs, common.key)
    parts = _alibi(layer, query, key, common) if layer.positions == "alibi" else _rotary(layer, query, key, common)
    meanings = {name: MEANINGS[layer.positions][name] for name in parts}
    return Terms(parts, layer.attention_scale, layer.is_causal, layer.window, layer.softcap, meanings)


def kernel(layer: FirstLayer, common: Common, offsets: Int[np.ndarray, "offset"]) -> Float[np.ndarray, "head offset"]:
    """The purely positional part of the score at these offsets i − j."""
    if layer.alibi_slopes is not None:
        return _slope_term(layer, offsets)
    key = for_each_head(common.key[:, None], layer)[:, 0]
    queries = [rotated_by_offset(layer, common.query, int(offset)) for offset in offsets]
    return np.einsum("ohd,hd->ho", np.stack(queries), key)


def _rotary(
    layer: FirstLayer,
    query: Float[np.ndarray, "head query d_head"],
    key: Float[np.ndarray, "key_head query d_head"],
    common: Common,
) -> dict[str, np.ndarray]:
    places = np.arange(query.shape[1])
    query_token, key_token = rotated(layer, query, places), _rotated_keys(layer, key, places)
    parts: dict[str, np.ndarray] = {Term.EE: query_token @ key_token.transpose(0, 2, 1)}
    if common.is_nothing:
        return parts
    shape = (1, len(places), 1)
    query_common = rotated(layer, np.tile(common.query[:, None], shape), places)
    key_common = _rotated_keys(layer, np.tile(common.key[:, None], shape), places)
    parts[Term.E] = query_common @ key_token.transpose(0, 2, 1)
    parts[Term.EP] = query_token @ key_common.transpose(0, 2, 1)
    parts[Term.P] = query_common @ key_common.transpose(0, 2, 1)
    return parts


def _rotated_keys(
    layer: FirstLayer, keys: Float[np.ndarray, "key_head query d_head"], places: Int[np.ndarray, "query"]
) -> Float[np.ndarray, "head query d_head"]:
    return for_each_head(rotated(layer, keys, places), layer)


def _alibi(
    layer: FirstLayer,
    query: Float[np.ndarray, "head query d_head"],
    key: Float[np.ndarray, "key_head query d_head"],
    common: Common,
) -> dict[str, np.ndarray]:
    """b is the same for each key, so the softmax cancels it: it is dropped."""
    key_token = for_each_head(key, layer)
    parts: dict[str, np.ndarray] = {Term.EE: query @ key_token.transpose(0, 2, 1)}
    if common.query.any():
        parts[Term.E] = np.einsum("hk,hjk->hj", common.query, key_token)
    places = np.arange(query.shape[1])
    offsets = places[:, None] - places
    parts[Term.P] = _slope_term(layer, offsets.ravel()).reshape(-1, *offsets.shape)
    return parts


def _slope_term(layer: FirstLayer, offsets: Int[np.ndarray, "offset"]) -> Float[np.ndarray, "head offset"]:
    """ALiBi lowers a score that is already scaled, so as a term it is divided by the attention scale."""
    assert layer.alibi_slopes is not None
    slopes = -np.multiply.outer(layer.alibi_slopes.astype(np.float64), offsets) / layer.attention_scale
    return slopes.astype(layer.token_embeddings.dtype)
