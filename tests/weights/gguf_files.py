"""GGUF files of tiny models, written with the gguf package in the layout that llama.cpp's converter gives them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np

from detoklens.weights.gguf_file import modules_of

QUANTISED = gguf.GGMLQuantizationType


def neighbours(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rows in halves of each head, put side by side as llama.cpp has rotary pairs."""
    return weight.reshape(heads, 2, -1, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def stored(name: str, values: np.ndarray, config: Any, architecture: str) -> np.ndarray:
    if architecture == "llama" and ".q_proj." in name:
        return neighbours(values, config.num_attention_heads)
    if architecture == "llama" and ".k_proj." in name:
        return neighbours(values, config.num_key_value_heads)
    turned = architecture == "gpt2" and name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight"))
    return np.ascontiguousarray(values.T) if turned else values


def write_settings(writer: gguf.GGUFWriter, config: Any, architecture: str) -> None:
    writer.add_embedding_length(config.hidden_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_block_count(config.num_hidden_layers)
    if architecture == "gpt2":
        writer.add_feed_forward_length(4 * config.hidden_size)
        writer.add_layer_norm_eps(config.layer_norm_epsilon)
        return
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    d_head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_key_length(d_head)
    writer.add_value_length(d_head)
    writer.add_rope_dimension_count(d_head)


def write_gguf(
    path: Path,
    model: Any,
    architecture: str,
    kinds: dict[str, Any] | None = None,
    more: dict[str, Any] | None = None,
    extra_tensors: dict[str, np.ndarray] | None = None,
) -> Path:
    """A model of transformers as a GGUF file; `kinds` names tensors to quantise, `more` settings to add."""
    writer = gguf.GGUFWriter(path, architecture)
    write_settings(writer, model.config, architecture)
    for name, value in (more or {}).items():
        adders = {list: writer.add_array, float: writer.add_float32, str: writer.add_string, int: writer.add_uint32}
        adders[type(value)](name, value)
    tensors = {f"{'' if architecture == 'gpt2' else 'model.'}{name}": v for name, v in model.state_dict().items()}
    for ours, theirs in modules_of(architecture, model.config.num_hidden_layers).items():
        for part in ("weight", "bias"):
            values = tensors.get(f"{ours}.{part}")
            if values is None:
                continue
            array = stored(f"{ours}.{part}", values.numpy(), model.config, architecture)
            kind = (kinds or {}).get(f"{theirs}.{part}")
            if kind is None:
                writer.add_tensor(f"{theirs}.{part}", array)
            else:
                writer.add_tensor(f"{theirs}.{part}", gguf.quants.quantize(array, kind), raw_dtype=kind)
    for name, array in (extra_tensors or {}).items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
