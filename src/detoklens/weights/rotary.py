"""RoPE frequencies from a config, in float64.

    default   θ_c = base^(−2c / d_rot)
    linear    θ_c / factor
    dynamic   θ_c up to max_position_embeddings, the longest text here; beyond it the base would grow
    llama3    low frequencies divided by factor, high ones kept, those between interpolated
    yarn      likewise by the number of turns within the original length; rotated vectors are multiplied by a factor

Any other type is refused by name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

from detoklens.errors import CheckpointError, UnsupportedModelError, shown
from detoklens.weights.config import read_object, read_positive

DEFAULT_BASE = 10_000.0
MOST_COORDINATES = 1 << 16  # of a head that are turned; published models have up to 512
ALWAYS = {"rope_type", "type", "rope_theta", "partial_rotary_factor"}
SETTINGS: Mapping[str, set[str]] = {
    "default": set(),
    "linear": {"factor"},
    "dynamic": {"factor"},
    "llama3": {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"},
    "yarn": {
        "factor", "original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow", "mscale",
        "mscale_all_dim", "truncate",
    },
}  # fmt: skip

Rope = Mapping[str, Any]


def rope_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """The RoPE settings: newer configs have them in rope_parameters, older ones in rope_scaling."""
    return read_object(config, "rope_scaling") or read_object(config, "rope_parameters")


def rotary_frequencies(
    rope: Rope, base: float, d_rotated: int, longest: int
) -> tuple[Float[np.ndarray, "pair"], float]:
    """Each pair's angle per position, and what rotated vectors are multiplied by; `longest` is the text's limit."""
    kind = rope.get("rope_type", rope.get("type", "default"))
    if not isinstance(kind, str) or kind not in SETTINGS:
        raise UnsupportedModelError(
            f"config.json: RoPE type {shown(kind)} is not computed; supported are: {', '.join(SETTINGS)}"
        )
    for name, value in rope.items():
        if value is not None and name not in ALWAYS | SETTINGS[kind]:
            raise UnsupportedModelError(
                f"config.json: the RoPE setting {shown(name)} = {shown(value)} is not handled for type {kind}"
            )
    if d_rotated > MOST_COORDINATES:
        raise CheckpointError(f"config.json: no head has {d_rotated:,} features; download it again")
    if d_rotated % 2 or d_rotated < 2:
        raise UnsupportedModelError(f"config.json: {d_rotated} rotary coordinates can't be split into pairs")
    plain = base ** (-np.arange(0, d_rotated, 2) / d_rotated)
    if kind == "linear":
        return plain / read_positive(rope, "factor"), 1.0
    if kind == "llama3":
        return _llama3(rope, plain, longest), 1.0
    if kind == "yarn":
        return _yarn(rope, plain, base, longest)
    return plain, 1.0


def _llama3(rope: Rope, plain: Float[np.ndarray, "pair"], longest: int) -> Float[np.ndarray, "pair"]:
    factor, low, high = (read_positive(rope, name) for name in ("factor", "low_freq_factor", "high_freq_factor"))
    original = read_positive(rope, "original_max_position_embeddings", longest)
    turns = original * plain / (2 * math.pi)  # within the length that the model was first trained on
    if high <= low:
        raise CheckpointError(f"config.json: high_freq_factor = {high} must be above low_freq_factor = {low}")
    kept = np.clip((turns - low) / (high - low), 0, 1)
    return plain / factor * (1 - kept) + plain * kept


def _yarn(rope: Rope, plain: Float[np.ndarray, "pair"], base: float, longest: int) -> tuple[np.ndarray, float]:
    d_rotated = 2 * len(plain)
    original = read_positive(rope, "original_max_position_embeddings", longest)
    factor = read_positive(rope, "factor", longest / original)

    def pair(turns: float) -> float:
        """The pair that makes this many turns within the original length."""
        return d_rotated * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))

    def growth(by: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * by * math.log(factor) + 1.0

    first_slowed, all_slowed = pair(read_positive(rope, "beta_fast", 32)), pair(read_positive(rope, "beta_slow", 1))
    if rope.get("truncate", True):
        first_slowed, all_slowed = math.floor(first_slowed), math.ceil(all_slowed)
    first_slowed, all_slowed = max(first_slowed, 0), min(all_slowed, d_rotated - 1)
    all_slowed += 0.001 if first_slowed == all_slowed else 0
    slowed = np.clip((np.arange(len(plain)) - first_slowed) / (all_slowed - first_slowed), 0, 1)
    if rope.get("attention_factor") is not None:
        rotary_factor = read_positive(rope, "attention_factor")
    elif rope.get("mscale") and rope.get("mscale_all_dim"):
        rotary_factor = growth(read_positive(rope, "mscale")) / growth(read_positive(rope, "mscale_all_dim"))
    else:
        rotary_factor = growth(1.0)
    return plain / factor * slowed + plain * (1 - slowed), rotary_factor
