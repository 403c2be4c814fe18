"""What does the real model's first attention layer do with a text? Asked of transformers itself.

The checkpoint is read by transformers' own loader, one layer deep, with eager attention; hooks on layer 0 take the
attention weights, what goes into and out of the output projection, and the block's output. Nothing of ours is in the
path.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from detoklens.model.loading import (
    in_double_precision,
    load_blocks,
    quiet_transformers,
    require_extra,
    their_failures,
)
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
