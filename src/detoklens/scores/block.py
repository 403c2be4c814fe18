"""The output of the first block, and layer 0 at the last position of many short texts.

In a first layer, the last position's output depends on its own query and on every key, not on other queries. So n texts
of k tokens need only n queries, in causal and bidirectional models alike. Two ablations are exact:

    cut       α[h, last, j] = 0 for some positions j in one head, the rest unchanged (not renormalised)
    terms     α = softmax of the sum of some terms only (see `terms`)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int
from scipy.special import erf, expit

from detoklens.scores.factors import (
    Common,
    Factor,
    for_each_head,
    key_head_of,
    position_factors,
    project,
    rotated_factors,
    side_factors,
)
from detoklens.scores.softmax import softcapped, softmax
from detoklens.scores.terms import TERMS, multiply_factors, slope_term
from detoklens.weights.first_layer import FeedForward, FirstLayer, FoldedLayer, MlpSublayer, Norm

if TYPE_CHECKING:
    from detoklens.scores.layer import Layer

Rows = Float[np.ndarray, "query d_model"]


def block_output(layer: FirstLayer, rest: MlpSublayer, stream: Rows, attention_output: Rows) -> Rows:
    """The residual stream after the block, from the stream before it and the attention output."""
    between = stream_after_attention(layer, rest, stream, attention_output)
    seen = _entered(layer, stream) if rest.is_parallel else between
    written = _normed(rest.mlp_norm, feed_forward(rest.feed_forward, _normed(rest.input_norm, seen)))
    return _normed(rest.output_norm, between + written * written.dtype.type(rest.residual_scale))


def stream_after_attention(layer: FirstLayer, rest: MlpSublayer | None, stream: Rows, attention_output: Rows) -> Rows:
    """The residual stream between attention and MLP; without `rest`, its norms are left out."""
    entered = _entered(layer, stream)
    if rest is None:
        return entered + attention_output
    written = _normed(rest.attention_norm, attention_output) * attention_output.dtype.type(rest.residual_scale)
    return _normed(rest.stream_norm, entered + written)


def _entered(layer: FirstLayer, stream: Rows) -> Rows:
    """The residual stream that the attention output is added to: BERT's is normed."""
    if not layer.norm_enters_stream:
        return stream
    return Norm(layer.norm_kind, layer.norm_gain, layer.norm_bias, layer.norm_epsilon)(stream)


def feed_forward(mlp: FeedForward, inputs: Rows) -> Rows:
    """The MLP's output."""
    activation = ACTIVATIONS[mlp.activation]
    up = _linear(inputs, mlp.up_weight, mlp.up_bias)
    if mlp.gate_weight is None:
        inner = activation(up)
    else:
        inner = activation(_linear(inputs, mlp.gate_weight, mlp.gate_bias)) * up
    return _linear(inner, mlp.down_weight, mlp.down_bias)


def _normed(norm: Norm | None, rows: Rows) -> Rows:
    return rows if norm is None else norm(rows)


def _linear(inputs: np.ndarray, weight: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    return inputs @ weight if bias is None else inputs @ weight + bias


def _gelu(x: np.ndarray) -> np.ndarray:
    return x * (1 + erf(x * np.sqrt(x.dtype.type(0.5)))) / 2


def _gelu_tanh(x: np.ndarray) -> np.ndarray:
    return x * (1 + np.tanh(x.dtype.type(np.sqrt(2 / np.pi)) * (x + x.dtype.type(0.044715) * x * x * x))) / 2


def _gelu_short(x: np.ndarray) -> np.ndarray:
    """BLOOM's GELU, with sqrt(2/π) rounded to eight digits."""
    return x * (1 + np.tanh(x.dtype.type(0.79788456) * x * (1 + x.dtype.type(0.044715) * x * x))) / 2


ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "gelu": _gelu,
    "gelu_short": _gelu_short,
    "gelu_tanh": _gelu_tanh,
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x * np.asarray(expit(x)),
}


@dataclass(frozen=True)
class LastPlace:
    """The last positions of texts of one length: scores by term, values, and the block's input."""

    weights: FirstLayer
    folded: FoldedLayer
    stream: Float[np.ndarray, "text d_model"]
    parts: Mapping[str, Float[np.ndarray, "head text key"]]
    values: Float[np.ndarray, "key_head text key d_head"]

    def attention(self, terms: Sequence[str] | None = None) -> Float[np.ndarray, "head text key"]:
        """α of the last position, from all terms or from some of them."""
        some = next(iter(self.parts.values()))
        scores = np.zeros_like(some)
        for name in self.parts if terms is None else terms:
            scores += self.parts[name]
        scores *= scores.dtype.type(self.weights.attention_scale)
        scores = softcapped(scores, self.weights.softcap)
        if self.weights.window is not None:
            scores[..., : max(0, scores.shape[-1] - self.weights.window)] = -np.inf
        return softmax(scores)

    def attention_cut(self, head: int, places: slice) -> Float[np.ndarray, "head text key"]:
        """α with one head's attention to these positions set to 0."""
        cut = self.attention()
        cut[head, :, places] = 0
        return cut

    def attention_output(self, attention: Float[np.ndarray, "head text key"]) -> Float[np.ndarray, "text d_model"]:
        """What the attention adds to the residual stream; value biases are weighted, as α need not add up to 1."""
        mixed = [
            np.einsum("tk,tkd->td", alpha, self.values[key_head_of(head, self.weights)])
            for head, alpha in enumerate(attention)
        ]
        width = self.folded.output_weight.shape[-1]
        return np.concatenate(mixed, axis=1) @ self.folded.output_weight.reshape(-1, width) + self.folded.output_bias


def last_place(layer: Layer, token_ids: Int[np.ndarray, "text key"], common: Common) -> LastPlace:
    """The last positions of texts that start at position 0; `common` is what tokens have in common (see `terms`)."""
    (n_texts, n_keys), weights, folded = token_ids.shape, layer.weights, layer.folded
    rows, positions = token_ids.ravel(), np.tile(np.arange(n_keys), n_texts)
    scales = layer.scales.at(positions, rows)[:, None]
    tokens, last = weights.token_embeddings[rows] / scales, slice(n_keys - 1, None, n_keys)
    stream, places = weights.token_embeddings[token_ids[:, -1]], weights.position_embeddings[:n_keys]
    inputs = tokens + weights.position_embeddings[positions] / scales if layer.positions == "learned" else tokens

    def by_text(vectors: Float[np.ndarray, "side_head row d_head"]) -> Float[np.ndarray, "side_head text key d_head"]:
        return vectors.reshape(len(vectors), n_texts, n_keys, -1)

    (query, key), (query_constant, key_constant) = layer.sides, common
    queries = side_factors(weights, query, query_constant, tokens[last])
    keys = side_factors(weights, key, key_constant, tokens)
    queries, keys = rotated_factors(weights, queries, positions[last]), rotated_factors(weights, keys, positions)
    if layer.positions == "learned":
        stream = stream + places[-1]
        asking, seen = position_factors(places[-1:], query.weight), position_factors(places, key.weight)
        queries |= {factor: vectors / scales[last] for factor, vectors in asking.items()}
        keys |= {factor: np.tile(vectors, (1, n_texts, 1)) / scales for factor, vectors in seen.items()}
    parts = multiply_factors(
        TERMS[layer.positions],
        queries | {Factor.CONSTANT: query_constant[:, None]},  # the same for every text
        {factor: for_each_head(by_text(keys[factor]), weights) for factor in keys if factor is not Factor.CONSTANT},
        lambda query, key: np.matmul(key, query[..., None])[..., 0],
        lambda: np.tile(slope_term(weights, np.arange(n_keys)[::-1])[:, None], (1, n_texts, 1)),
    )
    values = by_text(project(inputs, folded.value_weight)) + folded.value_bias[:, None, None]
    return LastPlace(weights, folded, stream, parts, values)


def block_input(
    layer: FirstLayer, token_ids: Int[np.ndarray, "row"], positions: Int[np.ndarray, "row"]
) -> Float[np.ndarray, "row d_model"]:
    """The residual stream before the block: e, or e + p with learned positions."""
    tokens = layer.token_embeddings[token_ids]
    return tokens + layer.position_embeddings[positions] if layer.positions == "learned" else tokens
