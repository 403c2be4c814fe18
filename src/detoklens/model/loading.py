"""Load the first blocks of the real model with transformers and eager attention.

The config is cut to the blocks asked for, so only their tensors are read from the checkpoint.
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
from detoklens.weights.gguf_file import GGUFFile
from detoklens.wording import percent

if TYPE_CHECKING:
    import torch


MEMORY_SHARE = 0.75
DEPTHS = ("num_hidden_layers", "encoder_layers", "decoder_layers")
KINDS = ("layer_types", "attention_layers")  # one entry per block
GGUF_TABLES = {
    "model.embed_tokens.weight": "vocab_size",
    "wte.weight": "vocab_size",
    "wpe.weight": "n_positions",
}  # config keys that transformers does not always read from a GGUF file, by the tensor that has one row for each


def refuse_too_large(needed: int, what: str, remedy: str) -> None:
    """Raise if this many bytes would take most of the machine's memory."""
    available = machine_memory()
    if needed > MEMORY_SHARE * available:
        raise RangeError(
            f"{what} need {needed / 1e9:.1f} GB, more than {percent(MEMORY_SHARE)} of this machine's "
            f"{available / 1e9:.1f} GB; {remedy}"
        )


def require_extra(purpose: str, real: Path | Any) -> None:
    """Raise if torch or transformers is missing or, for a GGUF file, accelerate."""
    missing = [name for name in ("torch", "transformers") if find_spec(name) is None]
    if missing:
        raise MissingExtraError(
            f"{purpose} needs {' and '.join(missing)}: pip install 'detoklens[model]' (in a clone: '.[model]')"
        )
    if isinstance(real, Path) and real.is_file() and find_spec("accelerate") is None:
        raise MissingExtraError("transformers needs accelerate to read GGUF files: pip install accelerate")


@dataclass(frozen=True)
class Loaded:
    """The first blocks of a model, and the tensors missing from its files, which are random."""

    model: Any
    missing: frozenset[str] = frozenset()
    mismatched: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...] = ()
    """Tensors of another shape than transformers expects: name, shape in the file, expected shape."""

    def refuse_mismatched(self, name: str) -> None:
        if self.mismatched:
            tensor, found, expected = self.mismatched[0]
            raise UnsupportedModelError(
                f"{name}: transformers can't run this checkpoint: tensor {tensor!r} has shape {tuple(found)}, but "
                f"transformers expects {tuple(expected)}; correct the settings, or pass the checkpoint as safetensors"
            )


def load_blocks(real: Path | Any, n_blocks: int, dtype: torch.dtype) -> Loaded:
    """Load the first blocks from a folder or GGUF file, or copy those of a model in memory."""
    loaded = (_from_path if isinstance(real, Path) else _from_memory)(real, n_blocks, dtype)
    loaded.model.config._experts_implementation = "eager"  # the fast one supports only some sizes
    loaded.model.config.use_cache = False
    loaded.model.eval()
    return loaded


def _from_path(path: Path, n_blocks: int, dtype: torch.dtype) -> Loaded:
    from transformers import AutoConfig, AutoModel

    options: dict[str, Any] = {"dtype": dtype, "attn_implementation": "eager", "output_loading_info": True}
    if path.is_file():  # transformers reads the whole GGUF file
        options["gguf_file"] = path.name
        config = AutoConfig.from_pretrained(path.parent, gguf_file=path.name)
        tensors = GGUFFile(path)
        for tensor, key in GGUF_TABLES.items():
            if tensor in tensors.names():
                setattr(config, key, tensors.shape(tensor)[0])
    else:
        config = _cut(AutoConfig.from_pretrained(path), n_blocks)
    folder = path.parent if path.is_file() else path
    model, info = AutoModel.from_pretrained(folder, config=config, ignore_mismatched_sizes=True, **options)
    return Loaded(model, frozenset(info["missing_keys"]), tuple(sorted(info["mismatched_keys"])))


def _from_memory(model: Any, n_blocks: int, dtype: torch.dtype) -> Loaded:
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
    for rounding in ("reorder_and_upcast_attn", "slow_but_exact"):  # these only change the order of sums
        if hasattr(config, rounding):
            setattr(config, rounding, False)
    return config


def depth_of(config: dict[str, Any]) -> int:
    """Number of blocks of the whole model, from its config."""
    for name in ("decoder_layers", "num_hidden_layers", "n_layer", "n_layers", "num_layers"):
        if isinstance(config.get(name), int):
            return int(config[name])
    raise CheckpointError("config.json does not say how many layers the model has; add num_hidden_layers")


@contextmanager
def in_double_precision() -> Iterator[None]:
    """Make transformers compute norms, rotary angles and softmax in float64.

    It casts them to float32 for every dtype, so a comparison in float64 would only see rounding. The formulas are
    transformers' own.
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
    """Replace float32 by float64 in every torch call of this thread."""
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
    """Turn any exception of transformers or torch into one line: our reader may accept what they reject."""
    try:
        yield
    except (MemoryError, DetokLensError):
        raise
    except Exception as error:  # of any type, such as KeyError for an unknown activation
        raise UnsupportedModelError(
            f"{where}: transformers can't run this checkpoint ({type(error).__name__}: {first_line(error)}); "
            "correct its config.json"
        ) from error


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence transformers' progress bars and its report of missing tensors: later layers are left out on purpose."""
    from transformers.utils import logging

    verbosity, had_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with _no_gguf_progress_bar():
            yield
    finally:
        logging.set_verbosity(verbosity)
        if had_bars:
            logging.enable_progress_bar()


@contextmanager
def _no_gguf_progress_bar() -> Iterator[None]:
    """transformers' GGUF reader ignores the logging settings."""
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
