"""A GGUF file as a checkpoint: its settings as a config, its tensors under transformers' names.

Quantised tensors are dequantised in blocks of rows: the numbers are those that llama.cpp computes with, not those of
the original model. What llama.cpp's converter does to tensors is undone: Llama's queries and keys have the coordinates
of a rotary pair next to each other, Gemma's gains include the added 1, joint projections are stacked, and GPT-2's
matrices are transposed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.util import find_spec
from math import nextafter, prod
from pathlib import Path
from typing import Any

import numpy as np

from detoklens.errors import CheckpointError, MissingExtraError, UnsupportedModelError, shown
from detoklens.weights.families import SPEC_OF, spec_of
from detoklens.weights.first_layer import FirstLayer
from detoklens.weights.gguf_header import GGUFTensor, read_gguf_header
from detoklens.weights.sources import check_finite
from detoklens.weights.spec import RotaryPositions, Spec, Switch

SUFFIX = ".gguf"
BLOCK_NUMBERS = 1 << 16  # dequantised at a time: fits into a processor's cache
PLAIN_TYPES = ("F32", "F16", "BF16")
FREQUENCY_FACTORS = "rope_freqs.weight"
IN_A_BLOCK = re.compile(r"blk\.(\d+)\.")
BEFORE_BLOCKS = ("token_", "position_", "rope_")
WITHOUT_EFFECT = {
    "vocab_size", "attention.value_length", "rope.scaling.original_context_length", "rope.scaling.finetuned",
}  # fmt: skip
READ_BELOW = {
    "attention.head_count_kv", "attention.key_length", "feed_forward_length", "rope.dimension_count",
    "rope.scaling.type", "rope.scaling.factor",
}  # fmt: skip
Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Architecture:
    """How GGUF files of one architecture are read: by which Spec, and what their settings mean."""

    model_type: str
    settings: Mapping[str, str] = field(default_factory=dict)  # beyond the usual ones: name and config key
    accepted: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)  # only these values are read
    ignored: frozenset[str] = frozenset()
    has_neighbouring_pairs: bool = False  # in queries and keys, unlike transformers
    adapt: Callable[[Settings, Collection[str]], dict[str, Any]] = lambda _own, _tensors: {}
    """More of the config, from the settings and the names of the tensors."""


def gemma_query_scale(own: Settings, _tensors: Collection[str]) -> dict[str, Any]:
    """llama.cpp scales queries by the width of a head, but in the 27B models by width / heads."""
    if own.get("block_count") in GEMMA_27B_BLOCKS:
        return {"query_pre_attn_scalar": own["embedding_length"] // own["attention.head_count"]}
    return {"query_pre_attn_scalar": own.get("attention.key_length", 256)}


def falcon_variant(own: Settings, tensors: Collection[str]) -> dict[str, Any]:
    """Falcon 7B has one key for all heads; later models have groups of heads, with one norm or two."""
    heads, key_heads = own.get("attention.head_count"), own.get("attention.head_count_kv", 1)
    if "blk.0.attn_norm_2.weight" in tensors:
        return {"new_decoder_architecture": True, "num_kv_heads": key_heads}
    if key_heads not in (1, heads):
        return {"new_decoder_architecture": True, "num_kv_heads": key_heads, "num_ln_in_parallel_attn": 1}
    return {"multi_query": key_heads == 1}


def olmo2_or_3(own: Settings, _tensors: Collection[str]) -> dict[str, Any]:
    """OLMo 3 is OLMo 2 with a sliding window in some layers, which have no RoPE scaling."""
    if "attention.sliding_window" not in own:
        return {}
    is_local = own.get("attention.sliding_window_pattern", True)
    base = {"rope_type": "default", "rope_theta": own.get("rope.freq_base", 10_000.0)}
    return {
        "model_type": "olmo3",
        "sliding_window": own["attention.sliding_window"],
        "layer_types": ["sliding_attention" if is_local else "full_attention"],
        "rope_parameters": {"sliding_attention": base, "full_attention": base},
    }


GEMMA_27B_BLOCKS = (46, 62)  # of Gemma 2 and Gemma 3
CAPPED_LOGITS = frozenset({"final_logit_softcapping"})
ARCHITECTURES = {
    "llama": Architecture("llama", has_neighbouring_pairs=True),
    "qwen2": Architecture("qwen2"),
    "qwen3": Architecture("qwen3"),
    "qwen3moe": Architecture("qwen3_moe"),
    "gemma": Architecture("gemma"),
    "gemma2": Architecture(
        "gemma2",
        settings={"attn_logit_softcapping": "attn_logit_softcapping"},
        ignored=CAPPED_LOGITS,
        adapt=gemma_query_scale,
    ),
    "gemma3": Architecture(
        "gemma3_text",
        settings={"rope.freq_base_swa": "rope_local_base_freq"},
        ignored=CAPPED_LOGITS,
        adapt=gemma_query_scale,
    ),
    "phi2": Architecture("phi"),
    "phi3": Architecture("phi3"),
    "olmo2": Architecture(
        "olmo2", ignored=frozenset({"attention.sliding_window", "attention.sliding_window_pattern"}), adapt=olmo2_or_3
    ),
    "starcoder2": Architecture("starcoder2"),
    "gptneox": Architecture("gpt_neox", settings={"use_parallel_residual": "use_parallel_residual"}),
    "falcon": Architecture(
        "falcon",
        accepted={"tensor_data_layout": ("jploski",)},
        ignored=frozenset({"attention.head_count_kv"}),
        adapt=falcon_variant,
    ),
    "bloom": Architecture("bloom"),
    "mpt": Architecture("mpt", accepted={"attention.clamp_kqv": (0,), "attention.max_alibi_bias": (8,)}),
    "gpt2": Architecture("gpt2"),
}
"""What can be read, by `general.architecture`."""


class GGUFFile:
    """The tensors of a GGUF file's first blocks, by transformers' names."""

    def __init__(self, path: Path, n_blocks: int = 1) -> None:
        if find_spec("gguf") is None:
            raise MissingExtraError(
                f"{path}: reading GGUF files needs gguf: pip install 'detoklens[gguf]' (in a clone: '.[gguf]')"
            )
        self.where, self._path, self._n_blocks = str(path), path, n_blocks
        self.settings, self._tensors = read_gguf_header(path)

    @cached_property
    def _architecture(self) -> Architecture:
        name = self.settings.get("general.architecture")
        if name not in ARCHITECTURES:
            raise UnsupportedModelError(
                f"{self.where}: the GGUF architecture {shown(name)} is not supported; supported are: "
                f"{', '.join(ARCHITECTURES)}"
            )
        return ARCHITECTURES[name]

    @cached_property
    def _spec(self) -> Spec:
        return spec_of(self.config)

    @cached_property
    def _stored_as(self) -> dict[str, str]:
        """The file's name of each tensor, by gguf's own table."""
        from gguf.constants import MODEL_ARCH_NAMES
        from gguf.tensor_mapping import TensorNameMap

        own = next(key for key, name in MODEL_ARCH_NAMES.items() if name == self.settings["general.architecture"])
        names, found = TensorNameMap(own, self._n_blocks), {}
        for block in range(self._n_blocks):
            for of_first in (*self._spec.attention_tensors(), *self._spec.mlp_tensors()):
                name = of_first.replace(f"{self._spec.blocks}.0.", f"{self._spec.blocks}.{block}.")
                full = (names.get_name(prefix + name, (".weight", ".bias")) for prefix in self._spec.prefixes)
                found[name] = next((there for there in full if there in self._tensors), None)
        return {name: there for name, there in found.items() if there is not None}

    @property
    def size(self) -> int:
        """Number of parameters in the file."""
        return sum(prod(tensor.shape) for tensor in self._tensors.values())

    def names(self) -> Collection[str]:
        return self._stored_as.keys()

    def left_out(self, taken: Collection[str]) -> list[str]:
        """Tensors of the first blocks and the embeddings that a model with parameters of these names lacks."""
        known = {there for ours, there in self._stored_as.items() if ours in taken}
        blocks = {name: IN_A_BLOCK.match(name) for name in self._tensors if name not in known}
        return sorted(
            name
            for name, block in blocks.items()
            if (name.startswith(BEFORE_BLOCKS) if block is None else int(block[1]) < self._n_blocks)
        )

    def shape(self, name: str) -> tuple[int, ...]:
        shape = self._tensors[self._stored_as[name]].shape
        return shape[::-1] if self._is_turned(name) else shape

    def _is_turned(self, name: str) -> bool:
        """Whether transformers has this matrix transposed."""
        return self._spec.is_conv1d and name.startswith(f"{self._spec.blocks}.")

    def read(self, name: str, dtype: np.dtype[Any]) -> np.ndarray:
        values = self._dequantised(self._tensors[self._stored_as[name]], dtype)
        check_finite(values, name, self.where)
        module = name.split(".", self._spec.blocks.count(".") + 2)[-1].rpartition(".")[0]
        if self._is_turned(name):
            return np.ascontiguousarray(values.T)
        if self._spec.added_gain and values.ndim == 1:
            return np.asarray(values - values.dtype.type(self._spec.added_gain))
        modules = self._spec.projections.modules
        if self._architecture.has_neighbouring_pairs and module in modules[:2]:
            return self._halves(values, self._spec.count_heads(self.config)[modules.index(module)])
        if self._spec.projections.layout == "interleaved" and module == modules[0]:
            return self._interleaved(values)
        return values

    def _halves(self, values: np.ndarray, heads: int) -> np.ndarray:
        """Reorder rows from neighbouring rotary pairs to first and second halves of each head."""
        if len(values) % (2 * heads):
            raise CheckpointError(f"{heads} heads do not divide the {len(values)} rows of queries or keys into pairs")
        by_pair = values.reshape(heads, -1, 2, *values.shape[1:])
        return np.ascontiguousarray(by_pair.swapaxes(1, 2)).reshape(values.shape)

    def _interleaved(self, values: np.ndarray) -> np.ndarray:
        """Reorder rows from all queries, all keys, all values to groups: the queries of a key, that key, its value."""
        heads, keys = self._spec.count_heads(self.config)
        if len(values) % (heads + 2 * keys):
            raise CheckpointError(
                f"{self.where}: {heads} heads with {keys} keys do not divide the {len(values)} rows of queries, keys "
                "and values"
            )
        parts = np.split(values.reshape(heads + 2 * keys, -1, *values.shape[1:]), [heads, heads + keys])
        grouped = [part.reshape(keys, -1, *part.shape[1:]) for part in parts]
        return np.concatenate(grouped, axis=1).reshape(values.shape)

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
        if "rope_scaling" in self.config or FREQUENCY_FACTORS in self._tensors:
            raise UnsupportedModelError(
                f"{self.where}: transformers does not read the RoPE scaling of a GGUF file, so blocks beyond the first "
                "layer can't be run; use a safetensors checkpoint"
            )
        return self._path

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
                block = rows[begin : begin + step]  # as one row: gguf works on 16 at a time, which is slow
                block[:] = dequantize(np.array(stored[begin : begin + step]).reshape(1, -1), kind).reshape(block.shape)
        except (NotImplementedError, ValueError) as error:
            raise CheckpointError(
                f"{self.where}: tensor {tensor.name!r} is quantised as {kind.name}, which is not read; convert the file"
            ) from error
        return values

    @cached_property
    def config(self) -> dict[str, Any]:
        """The settings as a config.json."""
        kind, architecture = self._architecture, self.settings["general.architecture"]
        spec = SPEC_OF[kind.model_type]
        own = {
            name.removeprefix(f"{architecture}."): _of_first_layer(value)
            for name, value in self.settings.items()
            if name.startswith(f"{architecture}.")
        }
        keys = {**_usual_settings(spec), **kind.settings}
        for name in sorted(own.keys() - {*keys, *kind.accepted, *kind.ignored, *WITHOUT_EFFECT, *READ_BELOW}):
            if not name.startswith("expert_"):
                raise self._not_handled(name, own[name])
        other = [name for name in self._tensors if name.startswith("rope_") and name != FREQUENCY_FACTORS]
        if other:
            raise UnsupportedModelError(f"{self.where}: RoPE scaling by the tensor {shown(other[0])} is not computed")
        for name, values in kind.accepted.items():
            if own.get(name, values[0]) not in values:
                raise self._not_handled(name, own[name])
        stated = {"attention.head_count_kv": own.get("attention.head_count")} | own  # by default as many as heads
        config = {key: stated[name] for name, key in keys.items() if name in stated}
        config |= {"model_type": kind.model_type, "rope_scaling": self._scaling(own)} | self._sizes(spec, own)
        query = "attn_q" if spec.projections.layout == "separate" else "attn_qkv"
        biases = {"ffn_up": spec.mlp and spec.mlp.bias, query: spec.projections.bias}
        config |= {
            switch.key: f"blk.0.{module}.bias" in self._tensors
            for module, switch in biases.items()
            if isinstance(switch, Switch)
        }
        config |= kind.adapt(own, self._tensors.keys())
        config |= {
            name: _of_first_layer(self.settings.get(f"tokenizer.ggml.{name}"))
            for name in ("bos_token_id", "eos_token_id")
        }
        return {name: value for name, value in config.items() if value is not None}

    def _not_handled(self, name: str, value: Any) -> UnsupportedModelError:
        architecture = self.settings["general.architecture"]
        return UnsupportedModelError(f"{self.where}: the setting {architecture}.{name} = {shown(value)} is not handled")

    def _sizes(self, spec: Spec, own: Settings) -> dict[str, Any]:
        """Check sizes in the settings that no config key states against the architecture."""
        width, heads = own.get("embedding_length"), own.get("attention.head_count")
        d_head = width // heads if width and heads else None
        implied = {"attention.head_count_kv": heads, "attention.key_length": d_head}
        if spec.mlp is not None and not spec.mlp.size:
            implied["feed_forward_length"] = (spec.mlp.default_factor or 0) * (width or 0)
        known = {*_usual_settings(spec), *self._architecture.ignored}
        for name, value in implied.items():
            if name not in known and own.get(name, value) != value:
                raise self._not_handled(name, own[name])
        d_head = own.get("attention.key_length", d_head)
        turned, positions = own.get("rope.dimension_count", d_head), spec.positions
        if not isinstance(positions, RotaryPositions) or turned is None or d_head is None:
            return {}
        if positions.is_partial and 0 < turned <= d_head:
            share = turned / d_head
            return {positions.share: share if int(d_head * share) == turned else nextafter(share, 1)}
        if turned != d_head:
            raise UnsupportedModelError(
                f"{self.where}: rotary positions on {turned} of {d_head} features are not handled"
            )
        return {}

    def _scaling(self, own: Settings) -> dict[str, Any] | None:
        kind, factor = own.get("rope.scaling.type"), own.get("rope.scaling.factor")
        if kind is None and factor not in (None, 0, 1):  # llama.cpp applies it; 0 is none to it
            raise UnsupportedModelError(
                f"{self.where}: RoPE scaling by a factor of {shown(factor)} without a "
                f"{self.settings['general.architecture']}.rope.scaling.type is not computed; convert the file again, "
                "with the type"
            )
        if kind in (None, "none"):
            return None
        if kind != "linear":
            raise UnsupportedModelError(f"{self.where}: RoPE scaling {shown(kind)} of a GGUF file is not computed")
        return {"rope_type": "linear", "factor": factor}


def _usual_settings(spec: Spec) -> dict[str, str]:
    """The settings that most architectures have, and the config keys of this one that mean the same."""
    rms = "rms_" if spec.norm_kind == "rms" else ""
    named: dict[str, Any] = {
        "embedding_length": spec.width[0],
        "block_count": "num_hidden_layers",
        "context_length": spec.longest[0],
        "feed_forward_length": next(iter(spec.mlp.size), None) if spec.mlp else "intermediate_size",
        "attention.head_count": spec.heads[0],
        "attention.head_count_kv": spec.key_heads,
        "attention.key_length": spec.head_size,
        f"attention.layer_norm_{rms}epsilon": spec.epsilon,
        "attention.sliding_window": "sliding_window" if "sliding_window" in spec.read_keys else None,
        "rope.freq_base": spec.positions.base if isinstance(spec.positions, RotaryPositions) else None,
    }
    return {name: key for name, key in named.items() if isinstance(key, str)}


def dequantised_note(kinds: Sequence[str], tensors: str) -> tuple[str, ...]:
    """A note that numbers differ from the original model's; empty if nothing is quantised."""
    note = f"{tensors} quantised as {', '.join(kinds)} were dequantised: the numbers are those of the GGUF file"
    return (note,) if kinds else ()


def _of_first_layer(value: Any) -> Any:
    """A setting's value in layer 0, if it is given per layer."""
    return value[0].item() if isinstance(value, np.ndarray) and value.size else value
