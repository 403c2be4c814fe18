"""Compare the decomposition with the real model, head by head."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from jaxtyping import Float

from detoklens.errors import CheckpointError, UnsupportedModelError
from detoklens.loading import load
from detoklens.model.loading import in_double_precision, load_blocks, quiet_transformers, require_extra, their_failures
from detoklens.scores.layer import Layer
from detoklens.tables.verification import VERIFICATION
from detoklens.weights.families import spec_of
from detoklens.weights.spec import Modules

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class RealAttention:
    """Layer 0 of the real model on one text."""

    attention: Float[np.ndarray, "head query key"]
    head_outputs: Float[np.ndarray, "head query d_model"]
    output: Float[np.ndarray, "query d_model"]
    block: Float[np.ndarray, "query d_model"]


def run_real_layer(real: Path | Any, config: dict[str, Any], token_ids: Sequence[int], dtype: str) -> RealAttention:
    """Run a text through the first layer of the real model, given as a path or in memory."""
    require_extra("comparing with the real model", real)
    modules = spec_of(config).modules
    name = str(real) if isinstance(real, Path) else type(real).__name__
    with their_failures(name):
        return _run(real, name, modules, token_ids, dtype)


def _run(real: Path | Any, name: str, modules: Modules, token_ids: Sequence[int], dtype: str) -> RealAttention:
    import torch

    with quiet_transformers(), in_double_precision() if dtype == "float64" else nullcontext():
        loaded = load_blocks(real, 1, getattr(torch, dtype))
        loaded.refuse_mismatched(name)
        model = loaded.model.get_submodule(modules.part) if modules.part else loaded.model
        block = model.get_submodule(modules.blocks)[0]
        caught: dict[str, tuple[Any, Any]] = {}
        _catch(block, "block", caught)
        _catch(block.get_submodule(modules.attention), "attention", caught)
        _catch(projection := block.get_submodule(modules.projection), "projection", caught)
        with torch.no_grad():
            model(torch.tensor([list(token_ids)]), output_attentions=True)
    attention = next(output for output in caught["attention"][1] if output is not None and output.ndim == 4)
    (mixed, *_), (output, *_) = caught["projection"]
    return RealAttention(
        attention=attention[0].numpy(),
        head_outputs=_head_outputs(mixed.reshape(len(token_ids), -1), projection, attention.shape[1]),
        output=output.reshape(len(token_ids), -1).numpy(),
        block=caught["block"][1][0].reshape(len(token_ids), -1).numpy(),
    )


def _catch(module: Any, name: str, caught: dict[str, tuple[Any, Any]]) -> None:
    def keep(_module: Any, inputs: Any, outputs: Any) -> None:
        caught[name] = (inputs, outputs if isinstance(outputs, tuple | list) else (outputs,))

    module.register_forward_hook(keep)


def _head_outputs(mixed: torch.Tensor, output_module: Any, n_heads: int) -> Float[np.ndarray, "head query d_model"]:
    """What each head writes: its part of the output projection's input times its rows of the projection."""
    width = mixed.shape[-1]
    weight = output_module.weight.detach()
    if type(output_module).__name__ == "Linear":
        weight = weight.T
    per_head = mixed.reshape(-1, n_heads, width // n_heads).transpose(0, 1)
    return (per_head @ weight.reshape(n_heads, width // n_heads, -1)).numpy()


# In float32, scores of a few hundred carry rounding errors of about 1e-5, in the real model as in ours.
TOLERANCES = {"float32": 1e-4, "float64": 1e-10}

DEFAULT_TEXT = (
    "Homo sapiens walked out of Africa; the nineteenth century brought Albert Einstein, aluminum chloride and Tokyo. "
    "Detokenization glues subword pieces back into words: sap and iens, Liber and tarian, Bar and ack. The the the."
)


def verify(layer: Layer, token_ids: Sequence[int], tolerance: float | None = None) -> pl.DataFrame:
    """Largest differences from transformers' attention and output, per head, in float32 and float64."""
    real_model = layer.checkpoint.folder or layer.checkpoint.model
    if real_model is None:
        raise CheckpointError(f"{layer.name} is arrays only: there is no real model; save it to a folder")
    layer.check_text(token_ids)
    rows = []
    for dtype, usual in TOLERANCES.items():
        ours = load(real_model, dtype=dtype)  # type: ignore[arg-type]
        real = run_real_layer(real_model, layer.checkpoint.config, token_ids, dtype)
        rows += _compare(ours, real, token_ids, dtype, usual if tolerance is None else tolerance)
    return VERIFICATION.conform(pl.DataFrame(rows))


def default_token_ids(layer: Layer, text: str | None, length: int | None) -> list[int]:
    """The tokens of `text`; without one, a built-in text filled up with random tokens to `length`."""
    if text is not None:
        return layer.vocabulary.encode(text)
    length = min(layer.n_positions, 256) if length is None else length
    start = layer.vocabulary.encode(DEFAULT_TEXT) if layer.has_vocabulary else []
    filling = [int(token) for token in np.random.default_rng(0).integers(0, layer.vocab_size, length)]
    some_token = (layer.weights.padding_token_id or 0) + 1
    readable = [some_token if token == layer.weights.padding_token_id else token for token in filling]
    return [*start, *readable][:length]


def _compare(
    ours: Layer, real: RealAttention, token_ids: Sequence[int], dtype: str, tolerance: float
) -> list[dict[str, object]]:
    if ours.n_heads != len(real.attention):
        raise CheckpointError(
            f"{ours.name}: transformers reads {len(real.attention)} heads from config.json, detoklens {ours.n_heads}; "
            "config.json contradicts itself, download the checkpoint again"
        )
    attention = np.abs(ours.terms(token_ids).attention() - real.attention).max(axis=(1, 2))
    written = np.abs(ours.head_outputs(token_ids) - real.head_outputs).max(axis=(1, 2))
    largest = max(1.0, float(np.abs(real.head_outputs).max()))
    layer, output = _difference(ours.attention_output(token_ids), real.output), _block_output(ours, token_ids)
    block = None if output is None else _difference(output, real.block)
    whole = max(layer.relative, 0.0 if block is None else block.relative)
    return [
        {
            "dtype": dtype,
            "head": head,
            "attention_difference": float(attention[head]),
            "output_difference": float(written[head]),
            "layer_output_difference": layer.absolute,
            "block_output_difference": None if block is None else block.absolute,
            "tolerance": tolerance,
            "passed": bool(max(attention[head], written[head] / largest, whole) <= tolerance),
        }
        for head in range(ours.n_heads)
    ]


def _block_output(ours: Layer, token_ids: Sequence[int]) -> np.ndarray | None:
    """Output of the first block; None without an MLP or with an unsupported one."""
    try:
        return ours.block_output(token_ids)
    except (CheckpointError, UnsupportedModelError):
        return None


@dataclass(frozen=True)
class Difference:
    """Largest difference of two outputs: absolute, and relative to max(1, largest |value|)."""

    absolute: float
    relative: float


def _difference(ours: np.ndarray, real: np.ndarray) -> Difference:
    absolute = float(np.abs(ours - real).max())
    return Difference(absolute, absolute / max(1.0, float(np.abs(real).max())))
