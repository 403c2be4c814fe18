"""The MLP sublayer: the first block's MLP, its norms, and how both join the residual stream.

One form covers all architectures; most have only one of the norms. With x what enters the block and a the attention's
output:

    h = stream_norm(x + attention_norm(a))
    y = output_norm(h + mlp_norm(MLP(input_norm(h))))          in a parallel block MLP(input_norm(x))
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float

from detoklens.weights.first_layer import add_value
from detoklens.weights.norm import Norm


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
    """Everything in the first block except its attention."""

    feed_forward: FeedForward
    input_norm: Norm | None = None
    is_parallel: bool = False
    attention_norm: Norm | None = None
    stream_norm: Norm | None = None
    mlp_norm: Norm | None = None
    output_norm: Norm | None = None

    @cached_property
    def fingerprint(self) -> str:
        """sha256 of all of it in float32, like a first layer's."""
        digest = hashlib.sha256()
        _add_fields(digest, "", self)
        return digest.hexdigest()


def _add_fields(digest: Any, path: str, part: Any) -> None:
    """Add the fields of a part, and of the parts inside it, by their full names."""
    for field in fields(part):
        name, value = f"{path}{field.name}", getattr(part, field.name)
        if is_dataclass(value):
            _add_fields(digest, f"{name}.", value)
        else:
            add_value(digest, name, value)
