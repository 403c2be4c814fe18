"""Read values from a config.json that may be wrong: every value is checked, every refusal names its key."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from detoklens.errors import CheckpointError, UnsupportedModelError, shown

Config = Mapping[str, Any]

LARGEST_SIZE = 1 << 31
ACTIVATIONS = {
    "gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "silu": "silu", "swish": "silu",
    "relu": "relu",
}  # fmt: skip
"""Activations: transformers' name and that of `scores.block`."""

# A config key with one of these words may change layer 0's attention. If a Spec doesn't know the key, it is refused, so
# that a setting invented later can't change results silently.
TELLING_WORDS = {
    "attn", "attention", "scale", "scaling", "norm", "epsilon", "rope", "rotary", "alibi", "position", "bias",
    "embd", "embed", "embeddings", "embedding", "quant", "quantization", "window", "sparse", "qk", "softcap",
    "softcapping", "parallel", "adapter", "lora",
}  # fmt: skip


MULTIMODAL: dict[str, dict[str, Any]] = {
    "gemma3": {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256},
    "llama4": {},
    "mistral3": {},
}
"""Multimodal models whose language model reads a text as it does on its own. Its config is their `text_config`, where
published ones leave out these sizes."""


def language_config(config: Config) -> dict[str, Any]:
    """The config of a multimodal model's language model; any other config as it is."""
    kind, inside = config.get("model_type"), config.get("text_config")
    if not isinstance(kind, str) or kind not in MULTIMODAL or not isinstance(inside, dict):
        return dict(config)
    stated = {key: config[key] for key in ("quantization_config", "bos_token_id", "eos_token_id") if key in config}
    return MULTIMODAL[kind] | inside | stated


def read_size(config: Config, *keys: str) -> int:
    """A size under any of these keys, which mean the same; if several are present, they must agree."""
    stated = {key: config[key] for key in keys if config.get(key) is not None}
    value = next(iter(stated.values()), None)
    if any(other != value for other in stated.values()):
        contradiction = ", ".join(f"{key} = {shown(other)}" for key, other in stated.items())
        raise CheckpointError(f"config.json contradicts itself: {contradiction} mean the same; keep the right one")
    if type(value) is not int or not 1 <= value < LARGEST_SIZE:
        raise CheckpointError(f"config.json: {' or '.join(keys)} must be a whole number above 0, not {shown(value)}")
    return value


def read_optional_size(config: Config, *keys: str) -> int | None:
    """A size, or None if the config doesn't state it."""
    return read_size(config, *keys) if any(config.get(key) is not None for key in keys) else None


def read_padding_token_id(config: Config, default: int) -> int | None:
    """The id of the padding token; None if the config sets it to null."""
    padding = config.get("pad_token_id", default)
    if padding is not None and (type(padding) is not int or not 0 <= padding < LARGEST_SIZE):
        raise CheckpointError(f"config.json: pad_token_id must be a whole number of at least 0, not {shown(padding)}")
    return padding


def read_epsilon(config: Config, key: str, default: float | None = None) -> float:
    """A norm's ε. It can be huge: a GPT-2 trained to do without LayerNorm sets it to 1e12."""
    epsilon = config.get(key, default)
    largest = float(np.finfo(np.float32).max)
    if not isinstance(epsilon, int | float) or isinstance(epsilon, bool) or not 0 <= epsilon <= largest:
        raise CheckpointError(f"config.json: {key} must be a number of at least 0, not {shown(epsilon)}")
    return float(epsilon)


def read_positive(config: Config, key: str, default: float | None = None) -> float:
    """A number above 0; null means the default."""
    value = config.get(key)
    if value is None:
        value = default
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise CheckpointError(f"config.json: {key} must be a number above 0, not {shown(value)}")
    return float(value)


def read_window(config: Config, default: int | None = 4096) -> int | None:
    """The sliding window: null means none, an absent key the family's default."""
    return read_optional_size(config, "sliding_window") if "sliding_window" in config else default


def first_layer_is_local(config: Config, by_default: bool) -> bool:
    """Whether layer 0 has a sliding window, by `layer_types` or else by the family's default."""
    kinds = config.get("layer_types")
    if kinds is None:
        return by_default
    if not isinstance(kinds, list) or not kinds or kinds[0] not in ("full_attention", "sliding_attention"):
        raise CheckpointError("config.json: layer_types must begin with full_attention or sliding_attention")
    return bool(kinds[0] == "sliding_attention")


def read_flag(config: Config, key: str, default: bool) -> bool:
    """True or false. Anything else is refused, because transformers would silently treat it as true or false."""
    value = config.get(key, default)
    if not isinstance(value, bool):
        raise CheckpointError(f"config.json: {key} must be true or false, not {shown(value)}")
    return value


def read_object(config: Config, key: str) -> dict[str, Any]:
    """A nested object; empty if it is absent or null."""
    value = config.get(key) or {}
    if not isinstance(value, dict):
        raise CheckpointError(f"config.json: {key} must be an object, not {shown(value)}")
    return dict(value)


def read_activation(config: Config, key: str, default: str, known: Mapping[str, str]) -> str:
    """The MLP's activation, by its name in `scores.block`."""
    stated = config.get(key, default)
    if not isinstance(stated, str) or stated not in known:
        raise UnsupportedModelError(
            f"config.json: {key} = {shown(stated)} is not computed, so neither is the first block's output; "
            f"supported are: {', '.join(known)}"
        )
    return known[stated]


def refuse_other_values(config: Config, accepted: Mapping[str, tuple[Any, ...]], where: str = "config.json: ") -> None:
    """Refuse keys with another value than those accepted; the first one is what an absent key means."""
    for key, values in accepted.items():
        stated = config.get(key, values[0])
        if stated not in values:
            raise UnsupportedModelError(f"{where}{key} = {shown(stated)} is not handled; {shown(values[0])} is")


def refuse_unknown_keys(config: Config, known: Collection[str]) -> None:
    """Refuse by name and value a key that may change layer 0's attention and that is not known."""
    for key, value in config.items():
        if key in known or value in (None, False):
            continue
        if TELLING_WORDS.intersection(key.lower().replace("-", "_").split("_")):
            raise UnsupportedModelError(
                f"config.json: {key} = {shown(value)} may change the first layer and is not handled; "
                "remove it if it has no effect on layer 0's attention"
            )
