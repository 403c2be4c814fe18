"""A small GPT-2 that can spell, with documents to read: what the commands on real text are tried on."""

from __future__ import annotations

import json
from pathlib import Path

from detoklens.tokens import Vocabulary
from tests.layers import random_first_layer, write_gpt2, write_tokenizer
from tests.spelled import LINES

LENGTH = 32


def write_text_model(folder: Path, **config: object) -> Path:
    write_tokenizer(folder, LINES, 330)
    size = Vocabulary.from_folder(folder).size
    layer = random_first_layer(n_heads=3, d_head=4, vocab_size=size, n_positions=LENGTH, seed=3, dtype="float32")
    return write_gpt2(folder, layer, **config)


def write_documents(path: Path, number: int = 40) -> Path:
    """Documents of 1 to 40 words as JSON lines."""
    words = " ".join(LINES).split()
    records = [{"text": " ".join(words[place : 2 * place + 1])} for place in range(number)]
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path
