"""What leaves the first block? The attention's output, the second norm and the MLP (see `weights.mlp`)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from detoklens.weights.first_layer import FirstLayer
from detoklens.weights.mlp import FeedForward, MlpSublayer
from detoklens.weights.norm import Norm

Rows = Float[np.ndarray, "query d_model"]


def block_output(layer: FirstLayer, rest: MlpSublayer, stream: Rows, attention_output: Rows) -> Rows:
    """The stream after the block, from the stream before it and what its attention writes."""
    between = stream_after_attention(layer, rest, stream, attention_output)
    seen = _entered(layer, stream) if rest.is_parallel else between
    written = feed_forward(rest.feed_forward, _normed(rest.input_norm, seen))
    return _normed(rest.output_norm, between + _normed(rest.mlp_norm, written))


def stream_after_attention(layer: FirstLayer, rest: MlpSublayer | None, stream: Rows, attention_output: Rows) -> Rows:
    """The stream between attention and MLP; without the rest of the block, before a norm that belongs to that."""
    entered = _entered(layer, stream)
    if rest is None:
        return entered + attention_output
    return _normed(rest.stream_norm, entered + _normed(rest.attention_norm, attention_output))


def _entered(layer: FirstLayer, stream: Rows) -> Rows:
    """The stream as the block goes on with it: BERT's is the normed one."""
    if not layer.norm_enters_stream:
        return stream
    return Norm(layer.norm_kind, layer.norm_gain, layer.norm_bias, layer.norm_epsilon)(stream)


def feed_forward(mlp: FeedForward, inputs: Rows) -> Rows:
    """What the MLP writes."""
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
    from scipy.special import erf

    return x * (1 + erf(x * np.sqrt(x.dtype.type(0.5)))) / 2


def _gelu_tanh(x: np.ndarray) -> np.ndarray:
    return x * (1 + np.tanh(x.dtype.type(np.sqrt(2 / np.pi)) * (x + x.dtype.type(0.044715) * x * x * x))) / 2


def _sigmoid(x: np.ndarray) -> np.ndarray:
    from scipy.special import expit

    return np.asarray(expit(x))


def _gelu_short(x: np.ndarray) -> np.ndarray:
    """BLOOM's, with sqrt(2/π) to eight digits."""
    return x * (1 + np.tanh(x.dtype.type(0.79788456) * x * (1 + x.dtype.type(0.044715) * x * x))) / 2


ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "gelu": _gelu,
    "gelu_short": _gelu_short,
    "gelu_tanh": _gelu_tanh,
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x * _sigmoid(x),
}
