"""From a model's name to something to ask: `load` for the first layer, `load_vocabulary` for its tokens alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np

from detoklens.errors import RangeError, as_path
from detoklens.scores.layer import Layer
from detoklens.tokens import Vocabulary
from detoklens.weights.checkpoint import (
    find_tokenizer_folder,
    is_gguf,
    plain_file_errors,
    read_checkpoint,
    read_gguf_vocabulary,
)

DTYPES = ("float32", "float64")


def load(model: Any, dtype: Literal["float32", "float64"] = "float32", revision: str | None = None) -> Layer:
    """Read a checkpoint's first layer: a local folder, a GGUF file, a hub id, or a transformers model in memory.

    Only the embeddings and layer 0's norm and attention are read, and neither torch nor transformers is imported.
    """
    if dtype not in DTYPES:
        raise RangeError(f"dtype {dtype!r} is not computed in; accepted are {' and '.join(DTYPES)}")
    if not hasattr(model, "state_dict"):
        as_path(model, "a model, if it is not one in memory,")
    return Layer(read_checkpoint(model, np.dtype(dtype), revision))


def load_vocabulary(model: str | Path, revision: str | None = None) -> Vocabulary:
    """Read a model's tokenizer alone: from its folder, its tokenizer.json, a GGUF file, or the hub."""
    path = as_path(model, "a tokenizer's place")
    with plain_file_errors():
        if path.suffix == ".json" and path.is_file():
            return Vocabulary.from_file(path)
        if is_gguf(model):
            return read_gguf_vocabulary(path)
        return Vocabulary.from_folder(find_tokenizer_folder(model, revision))
