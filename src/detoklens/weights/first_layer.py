"""The first attention layer as plain arrays, the same for every architecture. Row vectors: y = x W + b."""

from __future__ import annotations

import hashlib
from dataclasses import MISSING, dataclass, fields
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from detoklens.weights.norm import NormKind

Positions = Literal["learned", "rotary", "alibi"]


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
    query_norm_gain: Float[np.ndarray, "d_head"] | None = None  # of an RMSNorm on each head's queries
    key_norm_gain: Float[np.ndarray, "d_head"] | None = None
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
        """sha256 of all fields in float32, so that it does not depend on the dtype."""
        digest = hashlib.sha256()
        for field in fields(self):
            value = getattr(self, field.name)
            if field.default is MISSING or not _same(
                value, field.default
            ):  # unused fields don't change the fingerprint
                add_value(digest, field.name, value)
        return digest.hexdigest()


def _same(value: Any, default: Any) -> bool:
    return value is default or (not isinstance(value, np.ndarray) and bool(value == default))


def add_value(digest: Any, name: str, value: Any) -> None:
    """Add a named number, text, array or None to a digest."""
    if value is None or isinstance(value, str):
        digest.update(f"{name}={value}".encode())
        return
    values = np.ascontiguousarray(value, dtype="<f4")
    digest.update(f"{name}{values.shape}".encode())
    digest.update(values.data.cast("B") if values.size else b"")
