"""Training windows, which may start anywhere in the token stream."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from failure import RecipeError

SMALLEST_TRAINING_STREAM = 100  # windows


class Stream:
    """A memory-mapped file of token ids, and the length of the windows cut from it."""

    def __init__(self, path: Path, context: int) -> None:
        empty = path.stat().st_size == 0  # an empty file cannot be mapped
        self.ids = np.zeros(0, np.uint16) if empty else np.memmap(path, dtype=np.uint16, mode="r")
        self.context = context

    def windows(self, starts: np.ndarray) -> tuple[Tensor, Tensor]:
        """The token ids of the windows, and the next token of each."""
        offsets = starts[:, None] + np.arange(self.context + 1)
        ids = torch.from_numpy(self.ids[offsets].astype(np.int64))
        return ids[:, :-1], ids[:, 1:].contiguous()

    def random_windows(self, count: int, key: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Windows for a step. They depend only on the key (seed, step, process): no state to save."""
        starts = np.random.default_rng(key).integers(0, len(self.ids) - self.context, count)
        return self.windows(starts)

    def even_windows(self, count: int) -> tuple[Tensor, Tensor]:
        """The same evenly spaced windows every time, for the held-out loss."""
        starts = np.linspace(0, len(self.ids) - self.context - 1, count).astype(np.int64)
        return self.windows(starts)


def open_streams(folder: Path, context: int) -> tuple[Stream, Stream, dict[str, object]]:
    """Open the training stream, the held-out stream and their summary, as written by tokenise.py."""
    if not (folder / "stream.json").is_file():
        raise RecipeError(f"{folder} has no stream.json; run tokenise.py first")
    summary = json.loads((folder / "stream.json").read_text(encoding="utf-8"))
    train, heldout = (Stream(folder / f"{name}.bin", context) for name in ("train", "heldout"))
    if len(train.ids) < SMALLEST_TRAINING_STREAM * context or len(heldout.ids) <= context:
        raise RecipeError(
            f"the text is too small to train on: {len(train.ids)} tokens and {len(heldout.ids)} held out, "
            f"at least {SMALLEST_TRAINING_STREAM * context} and {context + 1} are needed; pass more text"
        )
    return train, heldout, summary
