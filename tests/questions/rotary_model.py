"""A rotary model of random weights with the demo's tokenizer: in memory, as a folder, and as a GGUF file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaModel

from detoklens import demo
from tests.weights.gguf_files import write_gguf


def rotary_model(seed: int = 0) -> LlamaModel:
    torch.manual_seed(seed)
    sizes = {"hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 3, "num_attention_heads": 4}
    return LlamaModel(LlamaConfig(vocab_size=4096, bos_token_id=0, initializer_range=0.2, **sizes))


def write_folder(folder: Path, seed: int = 0) -> Path:
    rotary_model(seed).save_pretrained(folder)
    shutil.copy(demo.CHECKPOINT / "tokenizer.json", folder)
    return folder


def write_file(path: Path, tokens: dict[str, int] | None = None, **more: Any) -> Path:
    """`tokens` are settings such as tokenizer.ggml.bos_token_id."""
    return write_gguf(path, rotary_model(), "llama", more=_tokenizer() | (tokens or {}), **more)


def _tokenizer() -> dict[str, Any]:
    """The demo's tokenizer as a GGUF file says it."""
    told = json.loads((demo.CHECKPOINT / "tokenizer.json").read_text())
    ids = told["model"]["vocab"] | {token["content"]: token["id"] for token in told["added_tokens"]}
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": sorted(ids, key=ids.__getitem__),
        "tokenizer.ggml.merges": [" ".join(merge) for merge in told["model"]["merges"]],
        "tokenizer.ggml.token_type": [3 if number == 0 else 1 for number in range(len(ids))],
    }
