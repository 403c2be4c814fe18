"""Compare the decomposition with the real model, head by head."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from jaxtyping import Float

from detoklens.errors import CheckpointError, UnsupportedModelError
from detoklens.loading import load
from detoklens.model.checks import require_extra, their_failures
from detoklens.scores.layer import Layer
from detoklens.tables.schema import HEAD, Column, Schema
from detoklens.weights.families import spec_of

if TYPE_CHECKING:
    import torch


VERIFICATION = Schema(
    "verification",
    "Difference between the decomposition and the real model",
    Column("dtype", "data type of both computations", "String"),
    HEAD,
    Column("attention_difference", "largest |difference| of an attention weight"),
    Column("output_difference", "largest |difference| of the head's output"),
    Column("layer_output_difference", "largest |difference| of the attention layer's output, with its bias"),
    Column("block_output_difference", "largest |difference| of the first block's output; null if its MLP is not read"),
    Column("tolerance", "largest accepted difference"),
    Column(
        "passed",
        "whether each difference is within the tolerance, for outputs relative to max(1, largest |value|)",
        "Boolean",
    ),
)


@dataclass(frozen=True)
class RealAttention:
    """Layer 0 of the real model on one text."""

    attention: Float[np.ndarray, "head query key"]
    head_outputs: Float[np.ndarray, "head query d_model"]
    output: Float[np.ndarray, "query d_model"]
    block: Float[np.ndarray, "query d_model"] | None  # None if transformers does not find the MLP


def run_real_layer(real: Path | Any, config: dict[str, Any], token_ids: Sequence[int], dtype: str) -> RealAttention:
    """Run a text through the first layer of the real model, given as a path or in memory."""
    require_extra("comparing with the real model", real)
    spec = spec_of(config)
    name = str(real) if isinstance(real, Path) else type(real).__name__
    from detoklens.model import first_blocks as blocks

    precision = blocks.in_double_precision() if dtype == "float64" else nullcontext()
    with their_failures(name), blocks.quiet_transformers(), precision:
        loaded = blocks.load_blocks(real, 1, getattr(blocks.torch, dtype))
        loaded.refuse_mismatched(name)
        random, without_mlp = (
            sorted(loaded.missing.intersection(f"{spec.part}.{name}".lstrip(".") for name in names))
            for names in (spec.attention_tensors(), spec.mlp_tensors())
        )
        if random:
            raise UnsupportedModelError(
                f"{name}: transformers does not find the tensor {random[0]!r}, so there is nothing to compare with; "
                "pass the checkpoint as safetensors"
            )
        model = loaded.model.get_submodule(spec.part) if spec.part else loaded.model
        block = model.get_submodule(spec.blocks)[0]
        caught: dict[str, tuple[Any, Any]] = {}
        _catch(block, "block", caught)
        _catch(block.get_submodule(spec.attention), "attention", caught)
        _catch(projection := block.get_submodule(spec.projections.modules[-1]), "projection", caught)
        with blocks.torch.no_grad():
            model(blocks.torch.tensor([list(token_ids)]), output_attentions=True)
        attention = next(output for output in caught["attention"][1] if output is not None and output.ndim == 4)
        (mixed, *_), (output, *_) = caught["projection"]
        return RealAttention(
            attention=attention[0].numpy(),
            head_outputs=_head_outputs(mixed.reshape(len(token_ids), -1), projection, attention.shape[1]),
            output=output.reshape(len(token_ids), -1).numpy(),
            block=None if without_mlp else caught["block"][1][0].reshape(len(token_ids), -1).numpy(),
        )


def _catch(module: Any, name: str, caught: dict[str, tuple[Any, Any]]) -> None:
    def keep(_module: Any, inputs: Any, outputs: Any) -> None:
        caught[name] = (inputs, outputs if isinstance(outputs, tuple | list) else (outputs,))

    module.register_forward_hook(keep)


def _head_outputs(mixed: torch.Tensor, output_module: Any, n_heads: int) -> Float[np.ndarray, "head query d_model"]:
    """What each head writes: its part of the output projection's input times its rows of the projection."""
    width = mixed.shape[-1]
    weight = output_module.weight.detach()
    if type(output_module).__name__ != "Conv1D":
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
        raise CheckpointError(f"{layer.name} is a layer of arrays without a real model; save the model to a folder")
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
    outputs = {"layer_output_difference": (ours.attention_output(token_ids), real.output)}
    with suppress(CheckpointError, UnsupportedModelError):  # without an MLP, or with an unsupported one
        if real.block is not None:
            outputs["block_output_difference"] = (ours.block_output(token_ids), real.block)
    differences = {name: float(np.abs(mine - theirs).max()) for name, (mine, theirs) in outputs.items()}
    whole = max(differences[name] / max(1.0, float(np.abs(theirs).max())) for name, (_, theirs) in outputs.items())
    return [
        {
            "dtype": dtype,
            "head": head,
            "attention_difference": float(attention[head]),
            "output_difference": float(written[head]),
            "block_output_difference": None,
            **differences,
            "tolerance": tolerance,
            "passed": bool(max(attention[head], written[head] / largest, whole) <= tolerance),
        }
        for head in range(ours.n_heads)
    ]
