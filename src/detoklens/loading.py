"""Load a model: `load` reads its first layer, `load_vocabulary` its tokenizer."""

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
    """Read a checkpoint's first layer.

    Only the embeddings and layer 0's norm and attention are read. torch and transformers are not imported.

    Parameters
    ----------
    model
        A local folder, a GGUF file, a hub id, ``demo``, or a transformers model in memory.
    dtype
        Precision of all computations.
    revision
        Branch, tag or commit of a hub model.

    Returns
    -------
    Layer
        The first layer.

    Raises
    ------
    CheckpointError, UnsupportedModelError, HubError
        The model can't be read, is not supported, or can't be downloaded.

    Examples
    --------
    >>> import detoklens as dl
    >>> dl.load("demo")
    Layer('demo', n_heads=4, d_head=32, d_model=128, vocab_size=4096, n_positions=256)
    """
    if dtype not in DTYPES:
        raise RangeError(f"dtype {dtype!r} is not supported; accepted are {' and '.join(DTYPES)}")
    if not hasattr(model, "state_dict"):
        as_path(model, "a model that is not in memory")
    return Layer(read_checkpoint(model, np.dtype(dtype), revision))


def load_vocabulary(model: str | Path, revision: str | None = None) -> Vocabulary:
    """Read a model's tokenizer without its weights.

    Parameters
    ----------
    model
        A local folder, a tokenizer.json, a GGUF file, or a hub id.
    revision
        Branch, tag or commit of a hub model.

    Returns
    -------
    Vocabulary
        Token ids and their text.

    Raises
    ------
    TokenError, HubError
        The tokenizer can't be read or downloaded.

    Examples
    --------
    >>> import detoklens as dl
    >>> dl.load_vocabulary("demo").encode(" the")  # doctest: +SKIP
    """
    path = as_path(model, "a tokenizer")
    with plain_file_errors():
        if path.suffix == ".json" and path.is_file():
            return Vocabulary.from_file(path)
        if is_gguf(model):
            return read_gguf_vocabulary(path)
        return Vocabulary.from_folder(find_tokenizer_folder(model, revision))
