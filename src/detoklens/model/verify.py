"""How far is the decomposition from the real model, head by head?"""

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
    """Run a text through the first layer of the real model: that of a folder, or one in memory."""
    require_extra("comparing with the real model", real)
    modules = spec_of(config).modules
    with their_failures(real if isinstance(real, Path) else type(real).__name__):
        return _run(real, modules, token_ids, dtype)


def _run(real: Path | Any, modules: Modules, token_ids: Sequence[int], dtype: str) -> RealAttention:
    import torch

    with quiet_transformers(), in_double_precision() if dtype == "float64" else nullcontext():
        whole = load_blocks(real, 1, getattr(torch, dtype)).model
        model = whole.get_submodule(modules.part) if modules.part else whole
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
    """The output projection's input, head by head, through that head's rows of the projection."""
    width = mixed.shape[-1]
    weight = output_module.weight.detach()
    if type(output_module).__name__ == "Linear":
        weight = weight.T
    per_head = mixed.reshape(-1, n_heads, width // n_heads).transpose(0, 1)
    return (per_head @ weight.reshape(n_heads, width // n_heads, -1)).numpy()


# float32 rounds scores of some hundreds to about 1e-5, in the real model as in ours; float64 leaves no such excuse.
TOLERANCES = {"float32": 1e-4, "float64": 1e-10}

DEFAULT_TEXT = (
    "Homo sapiens walked out of Africa; the nineteenth century brought Albert Einstein, aluminum chloride and Tokyo. "
    "Detokenization glues subword pieces back into words: sap and iens, Liber and tarian, Bar and ack. The the the."
)


def verify(layer: Layer, token_ids: Sequence[int], tolerance: float | None = None) -> pl.DataFrame:
    """Largest differences of attention and output to transformers' own layer, per head, in float32 and float64."""
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
    """The text's tokens; where no text is given, a built-in one, filled up with random tokens to `length` places."""
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
            f"{ours.name}: transformers reads {len(real.attention)} heads of its config.json, here they are "
            f"{ours.n_heads}; it contradicts itself, download it again"
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
    """What the whole first block writes; None where the checkpoint has no MLP, or one that is not computed."""
    try:
        return ours.block_output(token_ids)
    except (CheckpointError, UnsupportedModelError):
        return None


@dataclass(frozen=True)
class Difference:
    """The largest difference of two outputs, as it is and over max(1, largest |value|)."""

    absolute: float
    relative: float


def _difference(ours: np.ndarray, real: np.ndarray) -> Difference:
    absolute = float(np.abs(ours - real).max())
    return Difference(absolute, absolute / max(1.0, float(np.abs(real).max())))
