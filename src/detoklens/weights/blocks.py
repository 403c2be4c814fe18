"""Blocks beyond the first: their attention as plain arrays, and their fingerprint."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from detoklens.errors import CheckpointError
from detoklens.weights.checkpoint import Checkpoint, config_of, open_weights, plain_file_errors, read_config
from detoklens.weights.families import spec_of
from detoklens.weights.first_layer import FirstLayer
from detoklens.weights.gguf_file import GGUFFile, dequantised_note
from detoklens.weights.reader import read_first_layer
from detoklens.weights.sources import StateDict, TensorSource, tensors_of

KINDS = ("layer_types", "attention_layers", "no_rope_layers")  # lists with one entry per block


def source_of(checkpoint: Checkpoint, n_blocks: int) -> TensorSource:
    """The source of the first blocks' tensors."""
    folder = checkpoint.blocks_folder(n_blocks)
    if folder is None and checkpoint.model is None:
        raise CheckpointError(
            f"{checkpoint.name} is made of arrays, without a real model; save the model to a folder and load that"
        )
    if folder is None:
        return StateDict(tensors_of(checkpoint.model), checkpoint.name)
    with plain_file_errors():
        return GGUFFile(folder, n_blocks) if folder.is_file() else open_weights(folder)


def read_block(checkpoint: Checkpoint, block: int, inputs: np.ndarray, kinds: dict[str, list[Any]]) -> FirstLayer:
    """A block's attention, with `inputs` as the vector of each token; `kinds` are lists with one entry per block.

    Positions are not added again, and a norm before the first block is not applied again.
    """
    source, config = source_of(checkpoint, block + 1), checkpoint.config
    own = config | {name: entries[block:] for name, entries in kinds.items() if entries}
    spec = spec_of(own)
    if spec.later_input_norm:
        spec = replace(spec, input_norm=spec.later_input_norm, embedding_norm=None)
    with plain_file_errors():
        read = read_first_layer(spec, own, source, inputs.dtype, block, inputs)
    if read.norm_enters_stream:
        gain = np.ones_like(read.norm_gain)
        read = replace(read, norm_kind="none", norm_gain=gain, norm_bias=gain * 0, norm_enters_stream=False)
    if config.get("scale_attn_by_inverse_layer_idx"):
        read = replace(read, attention_scale=read.attention_scale / (block + 1))
    places = np.zeros((2, inputs.shape[1]), inputs.dtype) if len(read.position_embeddings) else read.position_embeddings
    return replace(read, position_embeddings=places)


def blocks_fingerprint(checkpoint: Checkpoint, n_blocks: int) -> str:
    """sha256 of the tensors of the first blocks and of those outside all blocks, in float32."""
    folder = checkpoint.blocks_folder(n_blocks)
    digest = hashlib.sha256()
    if folder is not None and folder.is_file():
        with folder.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    source = source_of(checkpoint, n_blocks)
    for name in spec_of(checkpoint.config).block_names(source.names(), n_blocks):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(source.read(name, np.dtype("<f4"))).data.cast("B"))
    return digest.hexdigest()


def blocks_size(checkpoint: Checkpoint, n_blocks: int) -> int:
    """Number of parameters in and outside the first blocks; transformers reads all of a GGUF file."""
    source = source_of(checkpoint, n_blocks)
    if isinstance(source, GGUFFile):
        return source.size
    names = spec_of(checkpoint.config).block_names(source.names(), n_blocks)
    return sum(prod(source.shape(name)) for name in names)


def real_model(checkpoint: Checkpoint, n_blocks: int) -> dict[str, Any]:
    """Everything that determines the real model's numbers: tensors, config, class in memory, quantisation types."""
    decided = {
        "blocks": blocks_fingerprint(checkpoint, n_blocks),
        "config": config_fingerprint(checkpoint, n_blocks),
        "class": None if checkpoint.model is None else class_name(base_of(checkpoint.model)),
        "dequantised_from": list(quantised_blocks(checkpoint, n_blocks)),
    }
    return {name: value for name, value in decided.items() if value}


def quantised_blocks(checkpoint: Checkpoint, n_blocks: int) -> tuple[str, ...]:
    """The types that tensors of the first blocks were dequantised from."""
    source = source_of(checkpoint, n_blocks)
    return source.quantised() if isinstance(source, GGUFFile) else ()


def block_notes(checkpoint: Checkpoint, n_blocks: int) -> tuple[str, ...]:
    """Notes about the first blocks that are not already among the first layer's."""
    kinds = quantised_blocks(checkpoint, n_blocks)
    return dequantised_note(kinds, f"tensors of the first {n_blocks} blocks") if kinds != checkpoint.quantised else ()


def base_of(model: Any) -> Any:
    """A model in memory without its head."""
    named = getattr(model, getattr(model, "base_model_prefix", ""), None)
    return named or getattr(model, "model", model)  # Llama 4's prefix names a module that only multimodal models have


def class_name(model: Any) -> str:
    """The class of a model: a subclass may compute something else from the same tensors."""
    return f"{type(model).__module__}.{type(model).__qualname__}"


def config_fingerprint(checkpoint: Checkpoint, n_blocks: int) -> str:
    """sha256 of the config, which determines everything that tensors don't: activations, ε, kinds of attention.

    transformers reads the config again; if it has changed since, both versions count.
    """
    now, folder = checkpoint.config, checkpoint.blocks_folder(n_blocks)
    if checkpoint.model is not None:
        now = config_of(checkpoint.model)
    elif folder is not None and folder.is_dir():  # a file's fingerprint covers its config
        with plain_file_errors():
            now = read_config(folder)
    configs = checkpoint.config if now == checkpoint.config else [checkpoint.config, now]
    return hashlib.sha256(json.dumps(configs, sort_keys=True, default=str).encode()).hexdigest()
