"""Checks before the real model runs: extras, memory, layers. Nothing here imports torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from detoklens.errors import (
    CheckpointError,
    DetokLensError,
    MissingExtraError,
    RangeError,
    UnsupportedModelError,
    first_line,
)
from detoklens.parallel import machine_memory
from detoklens.weights.checkpoint import Checkpoint
from detoklens.weights.families import spec_of
from detoklens.wording import percent

MEMORY_SHARE = 0.75


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
        raise MissingExtraError(
            "transformers needs accelerate to read GGUF files: pip install 'detoklens[model]' (in a clone: '.[model]')"
        )


def depth_of(config: dict[str, Any]) -> int:
    """Number of blocks of the whole model, from its config."""
    for name in ("decoder_layers", "num_hidden_layers", "n_layer", "n_layers", "num_layers"):
        if isinstance(config.get(name), int):
            return int(config[name])
    raise CheckpointError("config.json does not say how many layers the model has; add num_hidden_layers")


@contextmanager
def their_failures(where: Path | str) -> Iterator[None]:
    """Turn any exception of transformers or torch into one line: our reader accepts more than they do."""
    try:
        yield
    except (MemoryError, DetokLensError):
        raise
    except Exception as error:  # of any type, such as KeyError for an unknown activation
        raise UnsupportedModelError(
            f"{where}: transformers can't run this checkpoint ({type(error).__name__}: {first_line(error)}); "
            "correct its config.json"
        ) from error


def check_layer(checkpoint: Checkpoint, layer: int) -> None:
    depth = depth_of(checkpoint.config)
    if layer >= depth:
        raise RangeError(
            f"layer {layer} does not exist: {checkpoint.name} has layers 0 to {depth - 1}; choose one of them"
        )


def refuse_layers(checkpoint: Checkpoint, n_blocks: int) -> None:
    """Raise early if the blocks can't be run: missing extra, unknown architecture, or too many blocks."""
    require_extra("running the real model's first blocks", checkpoint.folder)
    spec_of(checkpoint.config)
    depth = depth_of(checkpoint.config)
    if n_blocks > depth:
        raise RangeError(f"{n_blocks} blocks were requested, but {checkpoint.name} has {depth}; pass {depth} or fewer")


def what_is_loaded(checkpoint: Checkpoint, n_blocks: int) -> str:
    """The blocks that are in memory at the same time, as named in error messages."""
    if is_in_a_file(checkpoint):
        return "all blocks, which are read of a GGUF file,"
    return "the first block" if n_blocks == 1 else f"the first {n_blocks} blocks"


def remedy_of_memory(checkpoint: Checkpoint, less: str = "") -> str:
    """What to do if memory is too small; `less` names a smaller request."""
    if is_in_a_file(checkpoint):
        return "pass the checkpoint as safetensors"
    return f"ask for {less}, or use a machine with more memory" if less else "use a machine with more memory"


def is_in_a_file(checkpoint: Checkpoint) -> bool:
    """Whether the checkpoint is a GGUF file."""
    return checkpoint.folder is not None and checkpoint.folder.is_file()


@dataclass(frozen=True)
class Component:
    """A head of a block, or its MLP if `head` is None."""

    layer: int
    head: int | None = None

    @property
    def name(self) -> str:
        return f"MLP{self.layer}" if self.head is None else f"L{self.layer}H{self.head}"


def components(n_blocks: int, n_heads: int) -> Sequence[Component]:
    """Every head and MLP of the first blocks, block by block."""
    return [Component(layer, head) for layer in range(n_blocks) for head in [*range(n_heads), None]]
