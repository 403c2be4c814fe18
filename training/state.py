"""How does a run continue from its own last state? Everything that changes while training, in one file.

A step's windows depend on (seed, step, process) alone and there is no dropout: no random state to keep.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch.optim import Optimizer

from failure import RecipeError
from model import GPT2
from settings import Settings, refuse_other
from writing import whole_file

FIRST_LAYER = ("wte.", "wpe.", "h.0.ln_1.", "h.0.attn.")
Progress = dict[str, float]  # step and seconds


def save_state(path: Path, settings: Settings, model: GPT2, optimizer: Optimizer, run: Progress) -> None:
    """Write the state, whole or not at all."""
    state = {
        "settings": json.dumps(asdict(settings)),
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "run": run,
    }
    with whole_file(path) as part:
        torch.save(state, part)


def read_state(path: Path) -> tuple[Settings, dict[str, Any]]:
    """What was saved? The run's settings, and its model, optimizer and progress."""
    if not path.is_file():
        raise RecipeError(f"{path} is missing; train.py writes it")
    state = torch.load(path, weights_only=True)
    return Settings(**json.loads(state["settings"])), state


def load_state(path: Path, settings: Settings, model: GPT2, optimizer: Optimizer) -> Progress:
    """Continue: fills model and optimizer, returns step and seconds; a run with other settings is refused."""
    saved, state = read_state(path)
    refuse_other(saved, settings, path.parent)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["run"]


def save_snapshot(folder: Path, model: GPT2, tokens: int) -> None:
    """Keep the first attention layer as it is after so many tokens, in full precision."""
    tensors = {name: value for name, value in model.state_dict().items() if name.startswith(FIRST_LAYER)}
    with whole_file(folder / f"{tokens}.safetensors") as part:
        save_file(tensors, part)
