"""The first block as plain arrays, the same for every architecture. Row vectors: y = x W + b.

The attention of layer 0 is a `FirstLayer`; `fold` folds its norm into the projections. The rest of the block is an
`MlpSublayer`.
"""

from __future__ import annotations

import hashlib
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

NormKind = Literal["layer", "rms", "none"]
Positions = Literal["learned", "rotary", "alibi"]


@dataclass(frozen=True)
class Norm:
    """One norm with its numbers; a gain that a checkpoint stores as 1 + w is the whole gain here.

    LayerNorm: (x − mean x) / sqrt(Var x + ε) · γ + β. RMSNorm: x / sqrt(mean x² + ε) · γ.
    """

    kind: NormKind
    gain: Float[np.ndarray, "*heads d_norm"]
    bias: Float[np.ndarray, "d_norm"] | None
    epsilon: float

    def __call__(self, vectors: Float[np.ndarray, "*rows d_norm"]) -> Float[np.ndarray, "*rows d_norm"]:
        if self.kind == "none":
            return vectors
        centred = vectors - vectors.mean(axis=-1, keepdims=True) if self.kind == "layer" else vectors
        scale = np.sqrt(np.mean(centred * centred, axis=-1, keepdims=True) + vectors.dtype.type(self.epsilon))
        normed = centred / scale * self.gain
        return normed if self.bias is None else normed + self.bias


@dataclass(frozen=True)
class FirstLayer:
    """The weights that determine the scores of layer 0, as stored in the checkpoint, before folding.

    `token_embeddings` are what a token adds to the residual stream: scaled, widened or normed if the model does that to
    the embedding alone. `position_embeddings` is the table of learned positions, including a token-type vector; it has
    no rows if positions rotate queries and keys (`rotary_frequencies`, one for each pair of coordinates c and
    c + n_pairs of a head) or lower scores by distance (`alibi_slopes`). Heads that share keys and values store them
    once. Scores are multiplied by `attention_scale` before the softmax: 1/sqrt(d_head), or 1. Missing biases are 0.
    """

    token_embeddings: Float[np.ndarray, "token d_model"]
    position_embeddings: Float[np.ndarray, "position d_model"]
    norm_gain: Float[np.ndarray, "d_model"]
    norm_bias: Float[np.ndarray, "d_model"]
    norm_epsilon: float
    query_weight: Float[np.ndarray, "d_model head d_head"]
    query_bias: Float[np.ndarray, "head d_head"]
    key_weight: Float[np.ndarray, "d_model key_head d_head"]
    key_bias: Float[np.ndarray, "key_head d_head"]
    value_weight: Float[np.ndarray, "d_model key_head d_head"]
    value_bias: Float[np.ndarray, "key_head d_head"]
    output_weight: Float[np.ndarray, "head d_head d_model"]
    output_bias: Float[np.ndarray, "d_model"]
    attention_scale: float
    norm_kind: NormKind = "layer"
    norm_enters_stream: bool = False  # the residual stream gets the normed vectors, as in BERT
    rotary_frequencies: Float[np.ndarray, "pair"] | None = None
    rotary_factor: float = 1.0  # factor on rotated queries and keys (YaRN)
    alibi_slopes: Float[np.ndarray, "head"] | None = None
    longest_text: int | None = None  # in tokens, if there is no table of positions
    query_norm_gain: Float[np.ndarray, "*head d_head"] | None = None  # of a norm on each head's queries
    key_norm_gain: Float[np.ndarray, "*key_head d_head"] | None = None
    head_norm_kind: NormKind = "rms"
    head_norms_are_joint: bool = False  # one norm for the vectors of all heads together, as in OLMo 2
    is_causal: bool = True
    window: int | None = None  # a query sees this many keys, itself included
    softcap: float | None = None  # scores become softcap · tanh(score / softcap)
    padding_token_id: int | None = None  # a token without a position: texts with it are refused

    @property
    def positions(self) -> Positions:
        """Kind of positions."""
        if len(self.position_embeddings):
            return "learned"
        return "alibi" if self.alibi_slopes is not None else "rotary"

    @property
    def n_positions(self) -> int:
        """The longest text."""
        return len(self.position_embeddings) or self.longest_text or 0

    @property
    def heads_per_key(self) -> int:
        """Number of heads that share the same keys and values."""
        return self.query_weight.shape[1] // self.key_weight.shape[1]

    @property
    def has_query_key_norms(self) -> bool:
        return self.query_norm_gain is not None or self.key_norm_gain is not None

    def fingerprint(self) -> str:
        """sha256 of all fields in float32, so that it does not depend on the dtype; unused fields don't count."""
        digest = hashlib.sha256()
        for field in fields(self):
            value, default = getattr(self, field.name), field.default
            is_default = value is default or (not isinstance(value, np.ndarray) and value == default)
            if default is MISSING or not is_default:
                _add_value(digest, field.name, value)
        return digest.hexdigest()


@dataclass(frozen=True)
class FoldedLayer:
    """The projections with the norm's centring, gain and bias inside; the output projection is as it was."""

    query_weight: Float[np.ndarray, "head d_model d_head"]
    query_bias: Float[np.ndarray, "head d_head"]
    key_weight: Float[np.ndarray, "key_head d_model d_head"]
    key_bias: Float[np.ndarray, "key_head d_head"]
    value_weight: Float[np.ndarray, "key_head d_model d_head"]
    value_bias: Float[np.ndarray, "key_head d_head"]
    output_weight: Float[np.ndarray, "head d_head d_model"]
    output_bias: Float[np.ndarray, "d_model"]


def fold(layer: FirstLayer) -> FoldedLayer:
    """Fold the norm into queries, keys and values, exactly.

    With C = I − (1/d)·1ᵀ1:  LN(x) = (x / σ(x)) · C · diag(γ) + β, so that

        W̃ = C diag(γ) W        b̃ = β W + b        for queries, keys and values,

    and LayerNorm shrinks to x ↦ x / σ(x). b̃_K adds a number to each row of scores that does not depend on the key, so
    the softmax cancels it: it is dropped from the scores and kept only to prove that. With rotary positions it does
    depend on the key's place, and stays. RMSNorm folds without C and β; without any norm W̃ = W.
    """
    folded: dict[str, np.ndarray] = {}
    for role in ("query", "key", "value"):  # in float64 (these matrices are small), kept in the layer's own type
        weight, bias = getattr(layer, f"{role}_weight"), getattr(layer, f"{role}_bias")
        stored = weight.astype(np.float64)
        gained = layer.norm_gain.astype(np.float64)[:, None, None] * stored
        if layer.norm_kind == "layer":
            gained -= gained.mean(axis=0)
        folded_bias = np.einsum("d,dhk->hk", layer.norm_bias.astype(np.float64), stored) + bias
        folded[f"{role}_weight"] = np.ascontiguousarray(gained.transpose(1, 0, 2), weight.dtype)
        folded[f"{role}_bias"] = folded_bias.astype(weight.dtype)
    return FoldedLayer(**folded, output_weight=layer.output_weight, output_bias=layer.output_bias)


@dataclass(frozen=True)
class FeedForward:
    """down(act(up x)), or with a gate down(act(gate x) · up x); a bias that the model doesn't have is None."""

    activation: str
    up_weight: Float[np.ndarray, "d_model d_mlp"]
    up_bias: Float[np.ndarray, "d_mlp"] | None
    down_weight: Float[np.ndarray, "d_mlp d_model"]
    down_bias: Float[np.ndarray, "d_model"] | None
    gate_weight: Float[np.ndarray, "d_model d_mlp"] | None = None
    gate_bias: Float[np.ndarray, "d_mlp"] | None = None


@dataclass(frozen=True)
class MlpSublayer:
    """Everything in the first block except its attention; most architectures have only one of the norms.

    With x what enters the block and a the attention's output:

        h = stream_norm(x + s · attention_norm(a))
        y = output_norm(h + s · mlp_norm(MLP(input_norm(h))))          in a parallel block MLP(input_norm(x))

    The factor s is `residual_scale`.
    """

    feed_forward: FeedForward
    input_norm: Norm | None = None
    is_parallel: bool = False
    attention_norm: Norm | None = None
    stream_norm: Norm | None = None
    mlp_norm: Norm | None = None
    output_norm: Norm | None = None
    residual_scale: float = 1.0

    @cached_property
    def fingerprint(self) -> str:
        """sha256 of all of it in float32, like a first layer's."""
        digest = hashlib.sha256()
        _add_value(digest, "", self)
        return digest.hexdigest()


def _add_value(digest: Any, name: str, value: Any) -> None:
    """Add a named number, text, array or None to a digest, or the fields of a part by their full names."""
    if is_dataclass(value):
        for field in fields(value):
            _add_value(digest, f"{name}.{field.name}".removeprefix("."), getattr(value, field.name))
    elif value is None or isinstance(value, str):
        digest.update(f"{name}={value}".encode())
    else:
        values = np.ascontiguousarray(value, dtype="<f4")
        digest.update(f"{name}{values.shape}".encode())
        digest.update(values.data.cast("B") if values.size else b"")
