"""A GGUF file as a checkpoint: its settings as a config, its tensors under transformers' names.

Quantised tensors are dequantised in blocks of rows: the numbers are those that llama.cpp computes with, not those of
the original model. Llama's queries and keys are stored with the coordinates of a rotary pair next to each other and are
reordered; GPT-2's matrices are stored transposed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from detoklens.errors import CheckpointError, MissingExtraError, UnsupportedModelError, shown
from detoklens.weights.first_layer import FirstLayer
from detoklens.weights.gguf_header import GGUFTensor, read_gguf_header
from detoklens.weights.sources import check_finite

SUFFIX = ".gguf"
BLOCK_NUMBERS = 1 << 22  # dequantised at a time: 16 MB
PLAIN_TYPES = ("F32", "F16", "BF16")
FREQUENCY_FACTORS = "rope_freqs.weight"
IN_A_BLOCK = re.compile(r"blk\.(\d+)\.")
BEFORE_BLOCKS = ("token_", "position_", "rope_")
LLAMA_MODULES = {
    "model.embed_tokens": "token_embd",
    "model.layers.0.input_layernorm": "blk.0.attn_norm",
    "model.layers.0.self_attn.q_proj": "blk.0.attn_q",
    "model.layers.0.self_attn.k_proj": "blk.0.attn_k",
    "model.layers.0.self_attn.v_proj": "blk.0.attn_v",
    "model.layers.0.self_attn.o_proj": "blk.0.attn_output",
    "model.layers.0.self_attn.q_norm": "blk.0.attn_q_norm",
    "model.layers.0.self_attn.k_norm": "blk.0.attn_k_norm",
    "model.layers.0.post_attention_layernorm": "blk.0.ffn_norm",
    "model.layers.0.mlp.gate_proj": "blk.0.ffn_gate",
    "model.layers.0.mlp.up_proj": "blk.0.ffn_up",
    "model.layers.0.mlp.down_proj": "blk.0.ffn_down",
}
GPT2_MODULES = {
    "wte": "token_embd",
    "wpe": "position_embd",
    "h.0.ln_1": "blk.0.attn_norm",
    "h.0.attn.c_attn": "blk.0.attn_qkv",
    "h.0.attn.c_proj": "blk.0.attn_output",
    "h.0.ln_2": "blk.0.ffn_norm",
    "h.0.mlp.c_fc": "blk.0.ffn_up",
    "h.0.mlp.c_proj": "blk.0.ffn_down",
}
MODULES = {"llama": LLAMA_MODULES, "qwen2": LLAMA_MODULES, "qwen3": LLAMA_MODULES, "gpt2": GPT2_MODULES}
TURNED = ("c_attn.weight", "c_proj.weight", "c_fc.weight")
LLAMA_SETTINGS = {
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "context_length": "max_position_embeddings",
    "rope.freq_base": "rope_theta",
}
GPT2_SETTINGS = {
    "embedding_length": "n_embd",
    "block_count": "n_layer",
    "feed_forward_length": "n_inner",
    "attention.head_count": "n_head",
    "attention.layer_norm_epsilon": "layer_norm_epsilon",
    "context_length": "n_positions",
}
READ_ELSEWHERE = {
    "vocab_size", "attention.value_length", "rope.dimension_count", "rope.scaling.type", "rope.scaling.factor",
    "rope.scaling.original_context_length", "rope.scaling.finetuned", "expert_count", "expert_used_count",
}  # fmt: skip


def modules_of(architecture: str, n_blocks: int) -> dict[str, str]:
    """The modules of the first blocks, and those outside all blocks: transformers' name and the file's."""
    of_first = MODULES[architecture].items()
    return {
        ours.replace(".0.", f".{block}."): theirs.replace(".0.", f".{block}.")
        for block in range(n_blocks)
        for ours, theirs in of_first
    }


class GGUFFile:
    """The tensors of a GGUF file's first blocks, by transformers' names."""

    def __init__(self, path: Path, n_blocks: int = 1) -> None:
        if find_spec("gguf") is None:
            raise MissingExtraError(
                f"{path}: reading GGUF files needs gguf: pip install 'detoklens[gguf]' (in a clone: '.[gguf]')"
            )
        from gguf.constants import GGML_QUANT_SIZES

        self.where, self._path, self._n_blocks = str(path), path, n_blocks
        header = read_gguf_header(path, {int(kind): sizes for kind, sizes in GGML_QUANT_SIZES.items()})
        self.settings, self._tensors = header.settings, header.tensors
        self.architecture = self.settings.get("general.architecture")
        if self.architecture not in MODULES:
            raise UnsupportedModelError(
                f"{path}: a GGUF file of architecture {shown(self.architecture)} is not read; supported are: "
                f"{', '.join(MODULES)}"
            )
        modules = modules_of(str(self.architecture), n_blocks).items()
        stored = {f"{ours}.{part}": f"{theirs}.{part}" for ours, theirs in modules for part in ("weight", "bias")}
        self._stored_as = {name: there for name, there in stored.items() if there in self._tensors}

    @property
    def size(self) -> int:
        """Number of parameters in the file."""
        return sum(prod(tensor.shape) for tensor in self._tensors.values())

    def names(self) -> Collection[str]:
        return self._stored_as.keys()

    def left_out(self, taken: Collection[str]) -> list[str]:
        """Tensors of the first blocks and the embeddings that a model with parameters of these names lacks."""
        names = {there: ours for ours, there in self._stored_as.items()}
        known = {there for there, ours in names.items() if ours in taken or ours.removeprefix("model.") in taken}
        return sorted(name for name in self._tensors if self._is_needed(name) and name not in known)

    def _is_needed(self, stored_as: str) -> bool:
        block = IN_A_BLOCK.match(stored_as)
        return stored_as.startswith(BEFORE_BLOCKS) if block is None else int(block[1]) < self._n_blocks

    def shape(self, name: str) -> tuple[int, ...]:
        shape = self._tensors[self._stored_as[name]].shape
        return shape[::-1] if self._is_turned(name) else shape

    def read(self, name: str, dtype: np.dtype[Any]) -> np.ndarray:
        values = self._dequantised(self._tensors[self._stored_as[name]], dtype)
        check_finite(values, name, self.where)
        if self._is_turned(name):
            return np.ascontiguousarray(values.T)
        heads = {"q_proj": "attention.head_count", "k_proj": "attention.head_count_kv"}.get(name.split(".")[-2])
        return _halves(values, self._heads(heads)) if heads and self.architecture == "llama" else values

    def quantised(self) -> tuple[str, ...]:
        """The quantisation types of the tensors that are read."""
        from gguf.constants import GGMLQuantizationType

        kinds = {self._tensors[there].kind for there in self._stored_as.values()}
        return tuple(sorted({GGMLQuantizationType(kind).name for kind in kinds} - set(PLAIN_TYPES)))

    def notes(self) -> tuple[str, ...]:
        """A note if numbers differ from the original model's."""
        return dequantised_note(self.quantised(), "tensors")

    def with_frequency_factors(self, layer: FirstLayer) -> FirstLayer:
        """Apply Llama 3's RoPE scaling, stored as a divisor for the frequency of each rotary pair."""
        if FREQUENCY_FACTORS not in self._tensors or layer.rotary_frequencies is None:
            return layer
        factors = self._dequantised(self._tensors[FREQUENCY_FACTORS], np.dtype(np.float64))
        if factors.shape != layer.rotary_frequencies.shape or not (np.isfinite(factors) & (factors > 0)).all():
            raise CheckpointError(f"{self.where}: {FREQUENCY_FACTORS} does not fit the heads; download it again")
        return replace(layer, rotary_frequencies=layer.rotary_frequencies / factors)

    def whole_model(self) -> Path:
        """The file's path for transformers; refused if transformers would ignore its RoPE scaling."""
        if "rope_scaling" in self.config() or FREQUENCY_FACTORS in self._tensors:
            raise UnsupportedModelError(
                f"{self.where}: transformers does not read the RoPE scaling of a GGUF file, so blocks beyond the first "
                "layer can't be run; use a safetensors checkpoint"
            )
        return self._path

    def _is_turned(self, name: str) -> bool:
        return self.architecture == "gpt2" and name.endswith(TURNED)

    def _heads(self, setting: str) -> int:
        config = self.config()
        own = config.get("num_attention_heads")
        count = own if setting.endswith("count") else config.get("num_key_value_heads", own)
        if not count:
            raise CheckpointError(f"{self.where}: {setting} must be a whole number above 0, not {shown(count)}")
        return int(count)

    def _dequantised(self, tensor: GGUFTensor, dtype: np.dtype[Any]) -> np.ndarray:
        from gguf.constants import GGMLQuantizationType
        from gguf.quants import dequantize

        kind, values = GGMLQuantizationType(tensor.kind), np.empty(tensor.shape, dtype)
        rows = values.reshape(-1, tensor.shape[-1])
        stored = np.memmap(
            self._path, np.uint8, "r", tensor.start, (len(rows), (tensor.end - tensor.start) // len(rows))
        )
        step = max(1, BLOCK_NUMBERS // rows.shape[1])
        try:
            for begin in range(0, len(rows), step):
                rows[begin : begin + step] = dequantize(np.array(stored[begin : begin + step]), kind)
        except (NotImplementedError, ValueError) as error:
            raise CheckpointError(
                f"{self.where}: tensor {tensor.name!r} is quantised as {kind.name}, which is not read; convert the file"
            ) from error
        return values

    def config(self) -> dict[str, Any]:
        """The settings as a config.json."""
        architecture = str(self.architecture)
        names = GPT2_SETTINGS if architecture == "gpt2" else LLAMA_SETTINGS
        own = {
            name.removeprefix(f"{architecture}."): value
            for name, value in self.settings.items()
            if name.startswith(f"{architecture}.")
        }
        self._refuse_unknown(own, names)
        config = {theirs: _of_first_layer(own[name]) for name, theirs in names.items() if name in own}
        config |= {"model_type": architecture, "rope_scaling": self._scaling(own)}
        if architecture == "llama":
            config["attention_bias"] = "model.layers.0.self_attn.q_proj.bias" in self._stored_as
        config |= {
            name: _of_first_layer(self.settings.get(f"tokenizer.ggml.{name}"))
            for name in ("bos_token_id", "eos_token_id")
        }
        return {name: value for name, value in config.items() if value is not None}

    def _refuse_unknown(self, own: Mapping[str, Any], names: Mapping[str, str]) -> None:
        unknown = sorted(own.keys() - names.keys() - READ_ELSEWHERE)
        if unknown:
            raise UnsupportedModelError(
                f"{self.where}: the setting {self.architecture}.{unknown[0]} = {shown(own[unknown[0]])} is not handled"
            )
        width, heads = own.get("embedding_length"), _of_first_layer(own.get("attention.head_count"))
        d_head = own.get("attention.key_length", width // heads if width and heads else None)
        turned = own.get("rope.dimension_count", d_head)
        if turned != d_head:
            raise UnsupportedModelError(
                f"{self.where}: rotary positions on {turned} of {d_head} features are not handled"
            )

    def _scaling(self, own: Mapping[str, Any]) -> dict[str, Any] | None:
        kind, factor = own.get("rope.scaling.type"), own.get("rope.scaling.factor")
        if kind is None and factor not in (None, 0, 1):  # llama.cpp applies it; 0 is none to it
            raise UnsupportedModelError(
                f"{self.where}: RoPE scaling by a factor of {shown(factor)} without a {self.architecture}.rope.scaling"
                ".type is not computed; convert the file again, with the type"
            )
        if kind in (None, "none"):
            return None
        if kind != "linear":
            raise UnsupportedModelError(f"{self.where}: RoPE scaling {shown(kind)} of a GGUF file is not computed")
        return {"rope_type": "linear", "factor": factor}


def dequantised_note(kinds: Sequence[str], tensors: str) -> tuple[str, ...]:
    """A note that numbers differ from the original model's; empty if nothing is quantised."""
    said = f"{tensors} quantised as {', '.join(kinds)} were dequantised: the numbers are those of the GGUF file"
    return (said,) if kinds else ()


def _of_first_layer(value: Any) -> Any:
    """A setting's value in layer 0, if it is given per layer."""
    return value[0].item() if isinstance(value, np.ndarray) else value


def _halves(values: np.ndarray, heads: int) -> np.ndarray:
    """Reorder rows from neighbouring rotary pairs to first and second halves of each head."""
    if len(values) % (2 * heads):
        raise CheckpointError(f"{heads} heads do not divide the {len(values)} rows of queries or keys into pairs")
    by_pair = values.reshape(heads, -1, 2, *values.shape[1:])
    return np.ascontiguousarray(by_pair.swapaxes(1, 2)).reshape(values.shape)
