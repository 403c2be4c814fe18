"""The saved state of a run: everything that changes during training, in one file.

There is no random state to save: a step's windows depend only on (seed, step, process), and there is no dropout.
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
    """Write the state atomically."""
    state = {
        "settings": json.dumps(asdict(settings)),
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "run": run,
    }
    with whole_file(path) as part:
        torch.save(state, part)


def read_state(path: Path) -> tuple[Settings, dict[str, Any]]:
    """Read the run's settings and its model, optimizer and progress."""
    if not path.is_file():
        raise RecipeError(f"{path} is missing; run train.py first")
    state = torch.load(path, weights_only=True)
    return Settings(**json.loads(state["settings"])), state


def load_state(path: Path, settings: Settings, model: GPT2, optimizer: Optimizer) -> Progress:
    """Restore model and optimizer and return step and seconds; raise a RecipeError if the settings differ."""
    saved, state = read_state(path)
    refuse_other(saved, settings, path.parent)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["run"]


def save_snapshot(folder: Path, model: GPT2, tokens: int) -> None:
    """Save the first attention layer after this many tokens, in full precision."""
    tensors = {name: value for name, value in model.state_dict().items() if name.startswith(FIRST_LAYER)}
    with whole_file(folder / f"{tokens}.safetensors") as part:
        save_file(tensors, part)
