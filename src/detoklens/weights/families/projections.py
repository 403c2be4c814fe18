"""Layer 0's projections in the ways checkpoints store them, as the parts of a FirstLayer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from detoklens.errors import CheckpointError
from detoklens.weights.families.base import LayerReader, head_size
from detoklens.weights.rest_of_block import FeedForward

Projections = dict[str, Any]  # arrays under the names of their fields
ROLES = ("query", "key", "value")


def separate(
    reader: LayerReader,
    names: Sequence[str],
    d: int,
    heads: int,
    *,
    key_heads: int | None = None,
    has_bias: tuple[bool, bool, bool, bool] = (True, True, True, True),
) -> Projections:
    """Four linear layers, named in the order query, key, value, output."""
    key_heads = heads if key_heads is None else key_heads
    if heads % key_heads:
        raise CheckpointError(f"config.json: {key_heads} key heads do not divide the {heads} heads")
    d_head = head_size(d, heads)
    found: Projections = {}
    for role, name, n, there in zip(ROLES, names, (heads, key_heads, key_heads), has_bias, strict=False):
        found[f"{role}_weight"] = reader.linear(f"{name}.weight", d, n * d_head).reshape(d, n, d_head)
        found[f"{role}_bias"] = reader.bias(f"{name}.bias", n * d_head, there).reshape(n, d_head)
    found["output_weight"] = reader.linear(f"{names[3]}.weight", d, d).reshape(heads, d_head, d)
    found["output_bias"] = reader.bias(f"{names[3]}.bias", d, has_bias[3])
    return found


def fused(
    reader: LayerReader, joint: str, output: str, d: int, heads: int, *, by_head: bool, has_bias: bool = True
) -> Projections:
    """One linear layer for queries, keys and values: side by side within each head, or one after the other."""
    d_head = head_size(d, heads)
    weight, bias = reader.linear(f"{joint}.weight", d, 3 * d), reader.bias(f"{joint}.bias", 3 * d, has_bias)
    order = (heads, 3, d_head) if by_head else (3, heads, d_head)
    axis = 1 if by_head else 0
    found: Projections = {}
    for number, role in enumerate(ROLES):
        found[f"{role}_weight"] = np.ascontiguousarray(weight.reshape(d, *order).take(number, axis=axis + 1))
        found[f"{role}_bias"] = np.ascontiguousarray(bias.reshape(order).take(number, axis=axis))
    found["output_weight"] = reader.linear(f"{output}.weight", d, d).reshape(heads, d_head, d)
    found["output_bias"] = reader.bias(f"{output}.bias", d, has_bias)
    return found


def halves_from_neighbours(projections: Projections, d_rotated: int) -> Projections:
    """Where rotary pairs are neighbours (GPT-J), put first all their first coordinates, then all their second ones.

    Queries and keys are reordered alike, so that each of their products is the same.
    """
    d_head = projections["query_weight"].shape[-1]
    order = np.concatenate([np.arange(0, d_rotated, 2), np.arange(1, d_rotated, 2), np.arange(d_rotated, d_head)])
    turned = {f"{role}_{part}" for role in ("query", "key") for part in ("weight", "bias")}
    return {
        name: np.ascontiguousarray(values[..., order]) if name in turned else values
        for name, values in projections.items()
    }


def plain_mlp(
    reader: LayerReader, up: str, down: str, d: int, inner: int, activation: str, has_bias: bool = True
) -> FeedForward:
    """Two linear layers."""
    return FeedForward(
        activation,
        reader.linear(f"{up}.weight", d, inner),
        reader.bias(f"{up}.bias", inner) if has_bias else None,
        reader.linear(f"{down}.weight", inner, d),
        reader.bias(f"{down}.bias", d) if has_bias else None,
    )


def with_parts(*modules: str, parts: tuple[str, ...] = ("weight", "bias")) -> tuple[str, ...]:
    """The tensors' names of some modules."""
    return tuple(f"{module}.{part}" for module in modules for part in parts)
