"""A real GPT-2 of two blocks, of which the second writes words by construction: head 1 looks back, the MLP joins.

The features are those of `planted_words`; the first block does nothing. LayerNorm divides by 10⁶ and multiplies by it.
"""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import GPT2Config, GPT2Model

from tests.questions.planted_words import (
    COPIED,
    D_MODEL,
    FIRST,
    N_HEADS,
    N_POSITIONS,
    PLACES,
    SHARP,
    TOKENS,
    WORDS,
    rest_of_block,
    vocabulary,
)

LINEAR = 1e12  # ε beside which the variance is nothing
D_HEAD = D_MODEL // N_HEADS


def write_planted(folder: Path, has_values: bool = True) -> Path:
    """The model with its tokenizer; without values the head copies nothing."""
    config = GPT2Config(
        vocab_size=len(TOKENS), n_positions=N_POSITIONS, n_embd=D_MODEL, n_head=N_HEADS, n_layer=2,
        n_inner=len(WORDS), activation_function="relu", layer_norm_epsilon=LINEAR, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    model = GPT2Model(config)
    with torch.no_grad():
        for name, values in model.named_parameters():
            values.fill_(LINEAR**0.5 if "ln_" in name and name.endswith("weight") else 0.0)
        model.wte.weight[:] = torch.eye(len(TOKENS), D_MODEL)
        for place in range(N_POSITIONS):
            model.wpe.weight[place, PLACES + place] = 1
        _plant(model.h[1], has_values)
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text(vocabulary().to_json())
    return folder


def _plant(block: torch.nn.Module, has_values: bool) -> None:
    joint, begin = block.attn.c_attn.weight, D_HEAD  # of head 1
    for place in range(N_POSITIONS):
        if place:
            joint[PLACES + place, begin + place - 1] = SHARP * D_HEAD**0.5
        joint[PLACES + place, D_MODEL + begin + place] = 1
    for number in range(len(FIRST)):
        joint[1 + number, 2 * D_MODEL + begin + number] = float(has_values)
        block.attn.c_proj.weight[begin + number, COPIED + number] = 1
    mlp = rest_of_block().feed_forward
    block.mlp.c_fc.weight[:] = torch.from_numpy(mlp.up_weight)
    block.mlp.c_fc.bias[:] = torch.from_numpy(mlp.up_bias)
    block.mlp.c_proj.weight[:] = torch.from_numpy(mlp.down_weight)
