"""How are the first blocks of the real model loaded? By transformers' own loader, with eager attention.

The config is cut to so many blocks, so that only their tensors are read from the checkpoint's files.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detoklens.corpus.memory import machine_memory
from detoklens.errors import (
    CheckpointError,
    DetokLensError,
    MissingExtraError,
    RangeError,
    UnsupportedModelError,
    first_line,
)
from detoklens.weights.blocks import base_of
from detoklens.wording import percent

if TYPE_CHECKING:
    import torch


SHARE = 0.75  # of the machine's memory


def refuse_too_large(needed: int, what: str, remedy: str) -> None:
    """An error where so many bytes are more than most of this machine's memory."""
    there = machine_memory()
    if needed > SHARE * there:
        raise RangeError(
            f"{what} need {needed / 1e9:.1f} GB, more than {percent(SHARE)} of this machine's {there / 1e9:.1f} GB; "
            f"{remedy}"
        )


DEPTHS = ("num_hidden_layers", "encoder_layers", "decoder_layers")
KINDS = ("layer_types", "attention_layers")  # one entry a block


def require_extra(purpose: str, real: Path | Any) -> None:
    """Refuse in one line where torch or transformers is not installed, or what transformers reads GGUF files with."""
    missing = [name for name in ("torch", "transformers") if find_spec(name) is None]
    if missing:
        raise MissingExtraError(
            f"{purpose} needs {' and '.join(missing)}: pip install 'detoklens[model]' (in a clone: '.[model]')"
        )
    if isinstance(real, Path) and real.is_file() and find_spec("accelerate") is None:
        raise MissingExtraError("transformers reads GGUF files with accelerate alone: pip install accelerate")


@dataclass(frozen=True)
class Loaded:
    """The first blocks of a model, and the tensors that its files lack: those are random."""

    model: Any
    missing: frozenset[str] = frozenset()


def load_blocks(real: Path | Any, n_blocks: int, dtype: torch.dtype) -> Loaded:
    """The model of a folder or GGUF file, or a copy of one in memory, with its first blocks only."""
    loaded = (_from_folder if isinstance(real, Path) else _from_memory)(real, n_blocks, dtype)
    loaded.model.config._experts_implementation = "eager"  # the fast way asks for sizes of its own
    loaded.model.config.use_cache = False
    loaded.model.eval()
    return loaded


def _from_folder(folder: Path, n_blocks: int, dtype: torch.dtype) -> Loaded:
    from transformers import AutoConfig, AutoModel

    wanted = {"dtype": dtype, "attn_implementation": "eager", "output_loading_info": True}
    if folder.is_file():  # all of a GGUF file is read
        model, said = AutoModel.from_pretrained(folder.parent, gguf_file=folder.name, **wanted)
    else:
        config = _cut(AutoConfig.from_pretrained(folder), n_blocks)
        model, said = AutoModel.from_pretrained(folder, config=config, **wanted)
    return Loaded(model, frozenset(said["missing_keys"]))


def _from_memory(model: Any, n_blocks: int, dtype: torch.dtype) -> Loaded:
    """A copy of the model's first blocks: the model itself stays as it is."""
    base = base_of(model)
    copied = type(base)._from_config(_cut(deepcopy(base.config), n_blocks), dtype=dtype, attn_implementation="eager")
    wanted = copied.state_dict()
    copied.load_state_dict({name: values for name, values in base.state_dict().items() if name in wanted})
    return Loaded(copied)


def _cut(config: Any, n_blocks: int) -> Any:
    for name in DEPTHS:
        if hasattr(config, name):
            setattr(config, name, n_blocks)
    for kinds in KINDS:
        if getattr(config, kinds, None):
            setattr(config, kinds, getattr(config, kinds)[:n_blocks])
    for rounding in ("reorder_and_upcast_attn", "slow_but_exact"):  # other orders of sums: the value is the same
        if hasattr(config, rounding):
            setattr(config, rounding, False)
    return config


def depth_of(config: dict[str, Any]) -> int:
    """How many blocks does the whole model have, as its config says?"""
    for name in ("decoder_layers", "num_hidden_layers", "n_layer", "n_layers", "num_layers"):
        if isinstance(config.get(name), int):
            return int(config[name])
    raise CheckpointError("config.json does not say how many layers the model has (num_hidden_layers); mend it")


@contextmanager
def in_double_precision() -> Iterator[None]:
    """transformers carries out norms, rotary angles and softmax in float32, whatever the model's type: in float64 here.

    Else a comparison in float64 would see the rounding of float32. The formulas are transformers' own.
    """
    import torch

    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with widened():
            yield
    finally:
        torch.set_default_dtype(usual)


def widened() -> Any:
    """What asks for float32 in this thread gets float64."""
    import torch
    from torch.overrides import TorchFunctionMode

    def wide(value: Any) -> Any:
        return torch.float64 if value is torch.float32 else value

    class Wide(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
            func = torch.Tensor.double if func is torch.Tensor.float else func
            named = {name: wide(value) for name, value in (kwargs or {}).items()}
            return func(*(wide(value) for value in args), **named)

    return Wide()


@contextmanager
def their_failures(where: Path | str) -> Iterator[None]:
    """What transformers or torch stumble over in a checkpoint that is read here: parts that have no say in layer 0."""
    try:
        yield
    except (MemoryError, DetokLensError):
        raise
    except Exception as error:  # of every kind: KeyError for an unknown activation, errors of their own
        raise UnsupportedModelError(
            f"{where}: transformers can't run this checkpoint ({type(error).__name__}: {first_line(error)}); "
            "mend its config.json"
        ) from error


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Layers that are not in the file are initialised at random, which is meant: no report about them, and no bars."""
    from transformers.utils import logging

    verbosity, had_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with _no_bar_of_gguf():
            yield
    finally:
        logging.set_verbosity(verbosity)
        if had_bars:
            logging.enable_progress_bar()


@contextmanager
def _no_bar_of_gguf() -> Iterator[None]:
    """The reader of GGUF files draws a bar of its own, whatever transformers' logging is told."""
    from transformers import modeling_gguf_pytorch_utils as reader

    bar = getattr(reader, "tqdm", None)
    if bar is None:
        yield
        return
    reader.tqdm = partial(bar, disable=True)
    try:
        yield
    finally:
        reader.tqdm = bar
