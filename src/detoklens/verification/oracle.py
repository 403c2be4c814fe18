"""What does the real model's first attention layer do with a text? Asked of transformers itself.

The checkpoint is read by transformers' own loader, one layer deep, with eager attention; hooks on layer 0 take the
attention weights, what goes into and out of the output projection, and the block's output. Nothing of ours is in the
path.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from detoklens.errors import MissingExtraError, UnsupportedModelError, first_line, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    _require_extra(reads_gguf=isinstance(real, Path) and real.is_file())
    place = PLACES.get(config.get("model_type", ""))
    if place is None:
        raise UnsupportedModelError(f"no real model to compare {shown(config.get('model_type'))} with")
    with _their_failures(real if isinstance(real, Path) else type(real).__name__):
        return _run(real, place, token_ids, dtype)


@dataclass(frozen=True)
class Place:
    """Where in transformers' model are the first block, its attention and that one's output projection?"""

    block: str
    attention: str
    projection: str
    part: str = ""  # of the model that reads the text


_LLAMA = Place("layers.0", "self_attn", "self_attn.o_proj")
_BERT = Place("encoder.layer.0", "attention.self", "attention.output.dense")
PLACES = {
    "gpt2": Place("h.0", "attn", "attn.c_proj"),
    "whisper": Place("layers.0", "self_attn", "self_attn.out_proj", part="decoder"),
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "mixtral": _LLAMA,
    "qwen3_moe": _LLAMA,
    "qwen2": _LLAMA,
    "qwen3": _LLAMA,
    "gemma": _LLAMA,
    "gemma2": _LLAMA,
    "gemma3_text": _LLAMA,
    "gpt_neox": Place("layers.0", "attention", "attention.dense"),
    "gptj": Place("h.0", "attn", "attn.out_proj"),
    "phi": Place("layers.0", "self_attn", "self_attn.dense"),
    "phi3": _LLAMA,
    "opt": Place("layers.0", "self_attn", "self_attn.out_proj", part="decoder"),
    "gpt_neo": Place("h.0", "attn", "attn.attention.out_proj"),
    "openai-gpt": Place("h.0", "attn", "attn.c_proj"),
    "biogpt": Place("layers.0", "self_attn", "self_attn.out_proj"),
    "xglm": Place("layers.0", "self_attn", "self_attn.out_proj"),
    "distilbert": Place("transformer.layer.0", "attention", "attention.out_lin"),
    "bloom": Place("h.0", "self_attention", "self_attention.dense"),
    "mpt": Place("blocks.0", "attn", "attn.out_proj"),
    "bert": _BERT,
    "electra": _BERT,
    "roberta": _BERT,
    "xlm-roberta": _BERT,
    "camembert": _BERT,
}


def _run(real: Path | Any, place: Place, token_ids: Sequence[int], dtype: str) -> RealAttention:
    import torch

    with _quiet_transformers(), in_double_precision() if dtype == "float64" else nullcontext():
        whole = (_from_folder if isinstance(real, Path) else _from_memory)(real, getattr(torch, dtype))
        whole.config._experts_implementation = "eager"  # the fast way asks for sizes of its own
        model = (whole.get_submodule(place.part) if place.part else whole).eval()
        block = model.get_submodule(place.block)
        caught: dict[str, tuple[Any, Any]] = {}
        _catch(block, "block", caught)
        _catch(block.get_submodule(place.attention), "attention", caught)
        _catch(projection := block.get_submodule(place.projection), "projection", caught)
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


def _from_folder(folder: Path, dtype: torch.dtype) -> Any:
    from transformers import AutoConfig, AutoModel

    if folder.is_file():
        return AutoModel.from_pretrained(folder.parent, gguf_file=folder.name, dtype=dtype, attn_implementation="eager")
    config = _one_layer_deep(AutoConfig.from_pretrained(folder))
    return AutoModel.from_pretrained(folder, config=config, dtype=dtype, attn_implementation="eager")


def _from_memory(model: Any, dtype: torch.dtype) -> Any:
    """A copy of the model's first layer: the model itself stays as it is."""
    base = getattr(model, model.base_model_prefix, model)
    copied = type(base)._from_config(_one_layer_deep(deepcopy(base.config)), dtype=dtype, attn_implementation="eager")
    wanted = copied.state_dict()
    copied.load_state_dict({name: values for name, values in base.state_dict().items() if name in wanted})
    return copied


def _one_layer_deep(config: Any) -> Any:
    for name in ("num_hidden_layers", "encoder_layers", "decoder_layers"):
        if hasattr(config, name):
            setattr(config, name, 1)
    for kinds in ("layer_types", "attention_layers"):
        if getattr(config, kinds, None):
            setattr(config, kinds, getattr(config, kinds)[:1])
    if hasattr(config, "reorder_and_upcast_attn"):
        config.reorder_and_upcast_attn = False  # it forces float32 inside; the value is the same
    return config


@contextmanager
def in_double_precision() -> Iterator[None]:
    """transformers carries out norms, rotary angles and softmax in float32, whatever the model's type: in float64 here.

    Else a comparison in float64 would see the rounding of float32. The formulas are transformers' own.
    """
    import torch
    from torch.overrides import TorchFunctionMode

    def wide(value: Any) -> Any:
        return torch.float64 if value is torch.float32 else value

    class Wide(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
            func = torch.Tensor.double if func is torch.Tensor.float else func
            named = {name: wide(value) for name, value in (kwargs or {}).items()}
            return func(*(wide(value) for value in args), **named)

    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with Wide():
            yield
    finally:
        torch.set_default_dtype(usual)


def _require_extra(reads_gguf: bool) -> None:
    missing = [name for name in ("torch", "transformers") if find_spec(name) is None]
    if reads_gguf and not missing and find_spec("accelerate") is None:
        raise MissingExtraError("transformers reads GGUF files with accelerate alone: pip install accelerate")
    if missing:
        raise MissingExtraError(
            f"comparing with the real model needs {' and '.join(missing)}: pip install 'detoklens[verify]'"
        )


@contextmanager
def _their_failures(where: Path | str) -> Iterator[None]:
    """What transformers or torch stumble over in a checkpoint that is read here: parts that have no say in layer 0."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:  # of every kind: KeyError for an unknown activation, errors of their own
        raise UnsupportedModelError(
            f"{where}: transformers can't run this checkpoint, so there is nothing to compare with "
            f"({type(error).__name__}: {first_line(error)}); mend its config.json"
        ) from error


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
