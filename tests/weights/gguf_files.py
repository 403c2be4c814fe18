"""GGUF files of tiny models, written with the gguf package in the layout that llama.cpp's converter gives them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np

QUANTISED = gguf.GGMLQuantizationType
MODEL_TYPES = {"gemma3": "gemma3_text", "phi2": "phi", "gptneox": "gpt_neox", "qwen3moe": "qwen3_moe"}
"""transformers' name where it is not GGUF's."""


def neighbours(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rows in halves of each head, put side by side as llama.cpp has rotary pairs."""
    return weight.reshape(heads, 2, -1, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def stacked(weight: np.ndarray, heads: int, keys: int) -> np.ndarray:
    """Rows of each key's queries, the key and its value, put in the order all queries, all keys, all values."""
    groups = weight.reshape(keys, heads // keys + 2, -1, *weight.shape[1:])
    parts = (groups[:, :-2], groups[:, -2], groups[:, -1])
    return np.concatenate([part.reshape(-1, *weight.shape[1:]) for part in parts])


def key_heads(config: Any) -> int:
    if config.model_type == "falcon" and not config.new_decoder_architecture:
        return 1 if config.multi_query else config.num_attention_heads
    stated = getattr(config, "num_kv_heads", None) or getattr(config, "num_key_value_heads", None)
    return int(stated or config.num_attention_heads)


def stored(name: str, values: np.ndarray, config: Any, architecture: str) -> np.ndarray:
    if architecture == "llama" and ".q_proj." in name:
        return neighbours(values, config.num_attention_heads)
    if architecture == "llama" and ".k_proj." in name:
        return neighbours(values, config.num_key_value_heads)
    if "query_key_value" in name:
        return stacked(values, config.num_attention_heads, key_heads(config))
    if architecture.startswith("gemma") and "norm" in name:
        return values + 1
    turned = architecture == "gpt2" and name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight"))
    return np.ascontiguousarray(values.T) if turned else values


def first(config: Any, *names: str) -> Any:
    return next(getattr(config, name) for name in names if getattr(config, name, None) is not None)


def write_settings(writer: gguf.GGUFWriter, config: Any, architecture: str) -> None:
    width, heads = config.hidden_size, config.num_attention_heads
    writer.add_embedding_length(width)
    writer.add_head_count(heads)
    writer.add_block_count(config.num_hidden_layers)
    length = ("max_position_embeddings", "seq_length", "max_seq_len")
    writer.add_context_length(first(config, *length) if architecture != "bloom" else 2048)
    fixed = architecture in ("gpt2", "bloom", "mpt", "falcon")
    writer.add_feed_forward_length(4 * width if fixed else config.intermediate_size)
    if hasattr(config, "rms_norm_eps"):
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    else:
        writer.add_layer_norm_eps(first(config, "layer_norm_epsilon", "layer_norm_eps", "norm_epsilon"))
    if architecture in ("gpt2", "bloom"):
        return
    if architecture == "mpt":
        writer.add_max_alibi_bias(8.0)
        return
    if architecture == "gptneox":
        writer.add_parallel_residual(config.use_parallel_residual)
    if architecture == "falcon":
        writer.add_tensor_data_layout("jploski")
    if architecture in ("gemma2", "gemma3", "phi3") and config.sliding_window:
        writer.add_sliding_window(config.sliding_window)
    if architecture == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if architecture != "gptneox":
        writer.add_head_count_kv(key_heads(config))
    rope = config.rope_parameters
    rope = rope.get("full_attention", rope)
    if architecture not in ("falcon", "phi2", "gptneox"):
        writer.add_rope_freq_base(rope["rope_theta"])
    d_head = getattr(config, "head_dim", None) or width // heads
    if architecture in ("llama", "qwen2", "qwen3", "qwen3moe", "gemma", "gemma2", "gemma3"):
        writer.add_key_length(d_head)
        writer.add_value_length(d_head)
    if architecture not in ("gemma3", "falcon", "olmo2"):
        writer.add_rope_dimension_count(int(d_head * rope.get("partial_rotary_factor", 1.0)))


def tensors_of(model: Any, architecture: str) -> dict[str, np.ndarray]:
    """The model's tensors by GGUF's names, which are those of the gguf package's own table."""
    key = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names, found = gguf.get_tensor_name_map(key, model.config.num_hidden_layers), {}
    for name, values in model.state_dict().items():
        prefixes = ("model.", "transformer.", "gpt_neox.", "")
        there = (names.get_name(prefix + name, (".weight", ".bias")) for prefix in prefixes)
        if stored_as := next((one for one in there if one), None):
            found[stored_as] = stored(name, values.numpy(), model.config, architecture)
    return found


def write_gguf(
    path: Path,
    model: Any,
    architecture: str,
    kinds: dict[str, Any] | None = None,
    more: dict[str, Any] | None = None,
    extra_tensors: dict[str, np.ndarray] | None = None,
    instead: dict[str, Any] | None = None,
) -> Path:
    """A model of transformers as a GGUF file.

    `kinds` names tensors to quantise, `more` settings to add, `instead` settings of the architecture to replace.
    """
    writer = gguf.GGUFWriter(path, architecture)
    write_settings(writer, model.config, architecture)
    for name, value in (instead or {}).items():
        writer.kv_data[0].pop(f"{architecture}.{name}", None)
        more = (more or {}) | {f"{architecture}.{name}": value}
    for name, value in (more or {}).items():
        adders = {list: writer.add_array, float: writer.add_float32, str: writer.add_string, int: writer.add_uint32}
        adders[type(value)](name, value)
    for name, array in (tensors_of(model, architecture) | (extra_tensors or {})).items():
        kind = (kinds or {}).get(name)
        if kind is None:
            writer.add_tensor(name, array)
        else:
            writer.add_tensor(name, gguf.quants.quantize(array, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
