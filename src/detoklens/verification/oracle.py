"""What does the real model's first attention layer do with a text? Asked of transformers itself.

The checkpoint is read by transformers' own loader, one layer deep, with eager attention; hooks on layer 0 take the
attention weights, what goes into the output projection, and the layer's output. Nothing of ours is in the path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from detoklens.errors import MissingExtraError, UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch


@dataclass(frozen=True)
class RealAttention:
    """Layer 0 of the real model on one text."""

    attention: Float[np.ndarray, "head query key"]
    head_outputs: Float[np.ndarray, "head query d_model"]
    output: Float[np.ndarray, "query d_model"]


def run_real_layer(folder: Path, config: dict[str, Any], token_ids: Sequence[int], dtype: str) -> RealAttention:
    """Run a text through the real model's first layer."""
    _require_extra()
    import torch

    build = _BUILDERS.get(config.get("model_type", ""))
    if build is None:
        raise UnsupportedModelError(f"no real model to compare {config.get('model_type')!r} with")
    with _quiet_transformers():
        model, attention_module, output_module = build(folder, getattr(torch, dtype))
    model.eval()
    caught: dict[str, Any] = {}
    attention_module.register_forward_hook(lambda _module, _inputs, outputs: caught.update(layer=outputs))
    output_module.register_forward_pre_hook(lambda _module, inputs: caught.update(mixed=inputs[0]))
    with torch.no_grad():
        model(torch.tensor([list(token_ids)]))
    output, attention = caught["layer"][:2]
    return RealAttention(
        attention=attention[0].numpy(),
        head_outputs=_head_outputs(caught["mixed"][0], output_module, attention.shape[1]),
        output=output[0].numpy(),
    )


def _head_outputs(mixed: torch.Tensor, output_module: Any, n_heads: int) -> Float[np.ndarray, "head query d_model"]:
    """The output projection's input, head by head, through that head's rows of the projection."""
    d_model = mixed.shape[-1]
    weight = output_module.weight.detach()
    if type(output_module).__name__ == "Linear":
        weight = weight.T
    per_head = mixed.reshape(-1, n_heads, d_model // n_heads).transpose(0, 1)
    return (per_head @ weight.reshape(n_heads, d_model // n_heads, -1)).numpy()


def _gpt2(folder: Path, dtype: torch.dtype) -> tuple[Any, Any, Any]:
    from transformers import GPT2Model

    # reorder_and_upcast_attn forces float32 inside, which would hide what float64 is asked for; the value is the same.
    model = GPT2Model.from_pretrained(
        folder, n_layer=1, dtype=dtype, attn_implementation="eager", reorder_and_upcast_attn=False
    )
    attention = model.h[0].attn
    return model, attention, attention.c_proj


def _whisper(folder: Path, dtype: torch.dtype) -> tuple[Any, Any, Any]:
    from transformers import WhisperModel

    model = WhisperModel.from_pretrained(
        folder, decoder_layers=1, encoder_layers=1, dtype=dtype, attn_implementation="eager"
    ).decoder
    attention = model.layers[0].self_attn
    return model, attention, attention.out_proj


_BUILDERS: dict[str, Callable[[Path, torch.dtype], tuple[Any, Any, Any]]] = {"gpt2": _gpt2, "whisper": _whisper}


def _require_extra() -> None:
    missing = [name for name in ("torch", "transformers") if find_spec(name) is None]
    if missing:
        raise MissingExtraError(
            f"comparing with the real model needs {' and '.join(missing)}: pip install 'detoklens[verify]'"
        )


@contextmanager
def _quiet_transformers() -> Iterator[None]:
    """Layers that are not in the file are initialised at random, which is meant: no report about them."""
    from transformers.utils import logging

    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        logging.enable_progress_bar()
